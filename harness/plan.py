"""From a suite to its trials: every combination, written out and checked before anything starts.

A combination that cannot be (TF32 on a CPU, a real set for a synthetic network) becomes a trial with status "unsupported" and its
reason, so that a table shows what was asked and why it is not there.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import networks
from harness.suite import Skip, Suite
from networks import work

GUESS_FLOPS = {"cpu": 5e10, "cuda": 2e13}  # per second and per thread or device: only for the first estimate of a plan's time
GUESS_START_SECONDS = 15.0


@dataclass(frozen=True)
class Trial:
    """One row: what is trained, by what, on what, how."""

    framework: str
    release: str
    network: str
    batch: int
    devices: int
    device_kind: str
    threads: int
    precision: str
    tuning: str
    data: str
    learning_rate: float
    parameters: int
    flops_per_step: int
    dropout: bool
    processes_planned: int
    status: str = "planned"
    reason: str = ""
    side: str = ""  # A or B in a comparison, where both may be the same release
    trial: str = field(init=False)

    def __post_init__(self) -> None:
        where = f"{self.device_kind}x{self.devices}" + (f"-t{self.threads}" if self.device_kind == "cpu" else "")
        parts = [self.framework, self.release, self.network, f"b{self.batch}", where, self.precision, self.tuning, self.data]
        parts += [self.side] if self.side else []
        object.__setattr__(self, "trial", "-".join(parts))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Machine:
    """What a plan needs to know of the machine."""

    device_kind: str
    cores: int
    devices: int


def make_trials(suite: Suite, releases: dict[str, str], machine: Machine, has_set: Callable[[str], bool]) -> list[Trial]:
    """Write out the suite. `releases` maps each framework spec to its release, `has_set` says which real sets are here."""
    trials = []
    for name, choice in suite.networks.items():
        network = networks.get(name)
        for batch in choice.batches or suite.batches or network.batches:
            for precision in choice.precisions or suite.precisions:
                for tuning in choice.tunings or suite.tunings:
                    for data in _data(choice.data or suite.data, network, has_set):
                        for devices in suite.devices:
                            for threads in _threads(suite, machine):
                                for spec, release in releases.items():
                                    status, reason = _refusal(network, precision, data, devices, threads, machine, has_set)
                                    trials.append(Trial(
                                        framework=spec.partition("==")[0], release=release, network=name, batch=batch,
                                        devices=devices, device_kind=machine.device_kind, threads=threads, precision=precision,
                                        tuning=tuning, data=data, learning_rate=network.learning_rate,
                                        parameters=network.parameter_count, flops_per_step=work.flops_per_step(network, batch),
                                        dropout=network.has_dropout, processes_planned=suite.processes,
                                        status=status, reason=reason,
                                    ))
    wanted = [trial for trial in trials if not any(_skipped(trial, skip) for skip in suite.skip)]
    return list({trial.trial: trial for trial in wanted}.values())  # a value given twice is one trial


def execution_order(trials: list[Trial], processes: int, seed: int) -> list[tuple[Trial, int]]:
    """Order the processes: each round runs every trial once, in an order shuffled anew, so that slow drift hits all alike."""
    generator = random.Random(seed)
    order = []
    for process in range(processes):
        planned = [trial for trial in trials if trial.status == "planned"]
        generator.shuffle(planned)
        order += [(trial, process) for trial in planned]
    return order


def estimate_seconds(trial: Trial, suite: Suite) -> float:
    """Guess one process's duration from the network's operations: start, check, warm-up, windows. A campaign soon knows better."""
    rate = GUESS_FLOPS[trial.device_kind] * (trial.threads if trial.device_kind == "cpu" else 1)
    step = trial.flops_per_step / rate
    warm_up = 8 * step + 4 * max(suite.window_seconds, step)
    return GUESS_START_SECONDS + warm_up + suite.windows * max(1.5 * suite.window_seconds, step)


def _skipped(trial: Trial, skip: Skip) -> bool:
    return all(getattr(trial, key) == value for key, value in skip.model_dump(exclude_none=True).items())


def _data(asked: tuple[str, ...], network: networks.Network, has_set: Callable[[str], bool]) -> list[str]:
    """Name the data of each trial: `real` and `auto` become the network's own set where that is meant."""
    named = []
    for data in asked:
        real = network.data_set
        if data == "auto":
            named.append(real if real != "synthetic" and has_set(real) else "host")
        elif data == "real":
            named.append(real if real != "synthetic" else "real")
        else:
            named.append(data)
    return list(dict.fromkeys(named))


def _threads(suite: Suite, machine: Machine) -> list[int]:
    if machine.device_kind != "cpu":
        return [1]  # the host's threads are the framework's own affair there
    return list(dict.fromkeys(machine.cores if threads == "all" else int(threads) for threads in suite.threads))


def _refusal(network: networks.Network, precision: str, data: str, devices: int, threads: int, machine: Machine,
             has_set: Callable[[str], bool]) -> tuple[str, str]:
    if precision == "tf32" and machine.device_kind == "cpu":
        return "unsupported", "TF32 is a format of NVIDIA's tensor cores; this trial is on a CPU"
    if data == "real":
        return "unsupported", f"{network.name} has no real data set; it is fed by the seeded teacher (data: device or host)"
    if data not in ("device", "host"):
        if data != network.data_set:
            return "unsupported", f"{network.name} is fed by {network.data_set}, not by {data}"
        if not has_set(data):
            return "unsupported", f"the set {data} is not on this machine: dlbench data fetch {data}, or set DLBENCH_DATA"
    if machine.device_kind == "cuda" and not machine.devices:
        return "unsupported", "no NVIDIA GPU answers on this machine"
    if devices > 1:
        return "unsupported", "this release trains on one device; several devices come with data-parallel runners"
    if threads > machine.cores:
        return "unsupported", f"{threads} threads asked for, this machine has {machine.cores} cores"
    return "planned", ""
