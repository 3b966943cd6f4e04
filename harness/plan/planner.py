"""From a suite to its trials: every combination, checked before anything starts.

An impossible combination (TF32 on a CPU, say) becomes an "unsupported" trial with its reason, so
that a table shows what was asked for.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import networks
from harness.data import data_sets, divided, image_files
from harness.environments import recipes
from harness.plan import memory
from harness.plan.parts import Skip, Until
from harness.plan.suite import Suite
from networks import work
from runners import int8

# Guesses for the first estimate of a plan's time; per second and thread or device.
GUESS_FLOPS = {"cpu": 5e10, "cuda": 2e13}
GUESS_START_SECONDS = 15.0
GUESS_PARTS = {"phases": 5, "files": 3}
# A campaign keeps a file of weights for each process.
MOST_WEIGHT_BYTES = 32 * 2**20
_UNABLE = {"training": "{} runs trained networks and trains none; write mode: inference",
           "inference": "{} has no engine here, so it only trains; write mode: training"}


@dataclass(frozen=True)
class Trial:
    """One row: what is trained, by what, on what, how.

    `batch` is per device; `flops_per_step` and `global_batch` (0: batch x devices) are of all
    `devices`, which lie on `nodes` machines in equal parts.
    `side` is A or B in a comparison, `ranks` the number of processes that share the devices.
    """

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
    side: str = ""
    strategy: str = ""
    ranks: int = 1
    global_batch: int = 0
    nodes: int = 1
    mode: str = "training"
    trial: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "global_batch", self.global_batch or self.batch * self.devices)
        even = self.batch * self.devices == self.global_batch
        batch = f"b{self.batch}" if even else f"b{self.global_batch}over{self.devices}"
        where = f"{self.device_kind}x{self.devices}"
        where += f"on{self.nodes}" if self.nodes > 1 else ""
        where += f"-{self.strategy}" if self.strategy else ""
        where += f"-t{self.threads}" if self.device_kind == "cpu" else ""
        parts = [self.framework, self.release, self.network, batch, where, self.precision,
                 self.tuning, self.data, *([self.mode] if self.mode != "training" else []),
                 *([self.side] if self.side else [])]
        object.__setattr__(self, "trial", "-".join(parts))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def module(self) -> str:
        """The module that a worker of this trial runs; "" if the framework has none."""
        framework = recipes.load(self.framework)
        return framework.engine if self.mode == "inference" else framework.runner


@dataclass(frozen=True)
class Machine:
    """What a plan needs to know of the machine."""

    device_kind: str
    cores: int
    devices: int
    memory_bytes: int | None = None
    # The memory of the smallest GPU.
    device_memory_bytes: float | None = None
    # The nodes of the allocation. The other nodes are assumed to be like this one.
    nodes: int = 1


def make_trials(suite: Suite, releases: dict[str, str], machine: Machine,
                has_set: Callable[[str], bool]) -> list[Trial]:
    """Expand the suite. `releases` maps framework specs, `has_set` says which sets are here."""
    # By name: a value that is given twice is one trial.
    trials = {}
    for trial in _combinations(suite, releases, machine, has_set):
        if any(_skipped(trial, skip) for skip in suite.skip):
            continue
        reason = (_refusal(trial, machine, has_set) or _untested(trial, suite.until)
                  or memory.refusal(trial, machine.memory_bytes, machine.device_memory_bytes,
                                    suite.check.batch))
        trials[trial.trial] = (replace(trial, status="unsupported", reason=reason) if reason
                               else trial)
    return list(trials.values())


def _combinations(suite: Suite, releases: dict[str, str], machine: Machine,
                  has_set: Callable[[str], bool]) -> Iterator[Trial]:
    """Yield a trial for each combination of the suite's values, possible or not."""
    for name, choice in suite.networks.items():
        network = networks.get(name)
        for batch, precision, tuning, data, local, nodes, scaling in product(
                choice.batches or suite.batches or network.batches,
                choice.precisions or suite.precisions, choice.tunings or suite.tunings,
                _data(choice.data or suite.data, network, has_set), suite.devices, suite.nodes,
                suite.scaling):
            devices = local * nodes
            whole = batch if scaling == "strong" else batch * devices
            threads_of_all = _threads(suite, machine, local)
            for threads, (spec, release) in product(threads_of_all, releases.items()):
                for strategy in _strategies(suite, spec, (devices, nodes), machine.device_kind):
                    yield Trial(
                        framework=spec.partition("==")[0], release=release, network=name,
                        batch=whole // devices, devices=devices, device_kind=machine.device_kind,
                        threads=threads, precision=precision, tuning=tuning, data=data,
                        learning_rate=network.learning_rate, parameters=network.parameter_count,
                        flops_per_step=work.flops_per_step(network, whole, suite.mode),
                        dropout=network.has_dropout and suite.mode == "training",
                        processes_planned=suite.processes, mode=suite.mode,
                        strategy=strategy, global_batch=whole, nodes=nodes,
                        ranks=devices if _in_ranks(spec, strategy) else nodes,
                    )


def execution_order(trials: list[Trial], processes: int, seed: int) -> list[tuple[Trial, int]]:
    """Order the processes. Each round runs every trial once in a new random order, so that slow
    drift of the machine affects all trials alike."""
    generator = random.Random(seed)
    order = []
    for process in range(processes):
        planned = [trial for trial in trials if trial.status == "planned"]
        generator.shuffle(planned)
        order += [(trial, process) for trial in planned]
    return order


def estimate_seconds(trial: Trial, suite: Suite) -> float:
    """Guess from the network's operations how much one process adds to a campaign.

    So many processes start and are checked at a time as `prepare_jobs` says.
    """
    starting = GUESS_START_SECONDS / suite.prepare_jobs
    rate = GUESS_FLOPS[trial.device_kind] * (trial.threads if trial.device_kind == "cpu" else 1)
    step = trial.flops_per_step / rate
    if suite.until:
        samples = data_sets.samples(trial.data, networks.get(trial.network))
        steps = suite.until.at_most_epochs * samples / trial.global_batch
        return starting + steps * step
    window = max(suite.window_seconds, suite.window_steps * step)
    warm_up = 8 * step + 4 * window
    windows = suite.windows * max(1.5 * suite.window_seconds, window)
    parts = GUESS_PARTS["phases"] * suite.phases + GUESS_PARTS["files"] * (trial.data == "files")
    further = parts * (windows + 4 * suite.window_seconds)
    return starting + warm_up + windows + further


def shares_cores(trial: Trial, cores: int) -> bool:
    """Return whether a CPU has too few cores for a trial's devices, each with its threads."""
    wanted = trial.devices // trial.nodes * trial.threads
    return trial.device_kind == "cpu" and trial.devices > 1 and wanted > cores


def _skipped(trial: Trial, skip: Skip) -> bool:
    wanted = skip.model_dump(exclude_none=True)
    return all(getattr(trial, key) == value for key, value in wanted.items())


def _data(asked: tuple[str, ...], network: networks.Network,
          has_set: Callable[[str], bool]) -> list[str]:
    """Name the data of each trial: `real` and `auto` become the network's own set."""
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


def _threads(suite: Suite, machine: Machine, devices: int) -> list[int]:
    """List the threads of one device; several devices on a CPU share its cores evenly.

    With GPUs a framework keeps its own default, written as 0.
    """
    if machine.device_kind != "cpu":
        return [0]
    share = max(1, machine.cores // devices)
    return list(dict.fromkeys(share if each == "all" else int(each) for each in suite.threads))


def _strategies(suite: Suite, spec: str, several: tuple[int, int], device_kind: str) -> list[str]:
    """List the aggregation strategies of trials on (devices, nodes); one device has none."""
    devices, nodes = several
    if devices == 1:
        return [""]
    parallel = recipes.load(spec.partition("==")[0]).parallel
    known = parallel.strategies_of(recipes.device_of(device_kind), nodes) if parallel else None
    first = known[0] if known else ""
    return list(dict.fromkeys(first if each == "default" else each for each in suite.strategies))


def _in_ranks(spec: str, strategy: str) -> bool:
    """Return whether a framework runs one process a device."""
    parallel = recipes.load(spec.partition("==")[0]).parallel
    return parallel is not None and parallel.has_ranks(strategy)


def _refusal(trial: Trial, machine: Machine, has_set: Callable[[str], bool]) -> str:
    """Return why a trial cannot run on this machine, or ""."""
    network, data, kind = networks.get(trial.network), trial.data, machine.device_kind
    if trial.precision == "tf32" and kind == "cpu":
        return "TF32 is a format of NVIDIA's tensor cores; this trial is on a CPU"
    if data == "real":
        return (f"{network.name} has no real data set; it is fed by the seeded teacher "
                "(data: device or host)")
    if data not in ("device", "host", "files"):
        if not data_sets.feeds(data, network):
            return f"{network.name} is fed by {network.data_set}, not by {data}"
        if not has_set(data):
            return (f"the set {data} is not on this machine: dlbench data fetch {data}, "
                    "or set DLBENCH_DATA")
    if data == "files" and (reason := _unread(trial)):
        return reason
    if not trial.module:
        return _UNABLE[trial.mode].format(recipes.load(trial.framework).title)
    if trial.precision == "int8" and (reason := _unquantised(trial)):
        return reason
    if kind == "cuda" and not machine.devices:
        return "no NVIDIA GPU answers on this machine"
    if trial.devices > 1 and (reason := _undivided(trial, machine)):
        return reason
    if trial.threads > machine.cores:
        return f"{trial.threads} threads asked for, this machine has {machine.cores} cores"
    return ""


def _unread(trial: Trial) -> str:
    """Return why a trial cannot train from image files, or ""."""
    framework = recipes.load(trial.framework)
    if trial.mode == "inference":
        return "data: files are for training; write mode: training, or data: host"
    if trial.devices > 1:
        return "data: files feed one device; write devices: 1, or data: host"
    if reason := image_files.refusal(networks.get(trial.network)):
        return reason
    if framework.files is None:
        return (f"{framework.title} reads no image files here: "
                f"configs/frameworks/{trial.framework}.yaml has no key files")
    return ""


def _untested(trial: Trial, until: Until | None) -> str:
    """Return why a trial cannot train to a test accuracy if it has to, or ""."""
    if until is None:
        return ""
    network = networks.get(trial.network)
    if trial.data not in divided.DIVISIBLE:
        return (f"until: {trial.data} has no test part here, {' and '.join(divided.DIVISIBLE)} "
                "have: write data: with one of them and a network for it, as fcn5 or resnet56")
    if network.has_dropout:
        return (f"until: {network.name} has dropout, whose masks hide what a step did: "
                "name a network without it")
    if trial.precision == "fp16" and until.scheduled:
        return ("until: fp16 scales the loss, and this scales a weight decay or a learning rate "
                "otherwise in each framework: write bf16, tf32 or fp32")
    if until.augmentation != "none" and len(network.input_shape) != 3:
        return f"until.augmentation: {network.name} takes numbers, not images"
    if until.keep_weights and (size := 4 * network.parameter_count) > MOST_WEIGHT_BYTES:
        return (f"until.keep_weights: the weights of {network.name} take {size / 2**20:,.0f} MiB, "
                f"files of at most {MOST_WEIGHT_BYTES / 2**20:.0f} MiB are kept: name a smaller "
                "network, or leave the key out")
    return ""


def _unquantised(trial: Trial) -> str:
    """Return why a trial cannot run in INT8, or ""."""
    framework = recipes.load(trial.framework)
    if trial.mode == "training":
        return "INT8 is a format of trained networks; write mode: inference"
    if not framework.int8_summands:
        able = [name for name in recipes.names() if recipes.load(name).int8_summands]
        return f"dlbench runs no INT8 in {framework.title}: choose {' or '.join(able)}"
    if recipes.device_of(trial.device_kind) == "cuda":
        return f"{framework.title}'s INT8 kernels here are those of processors"
    return str(int8.refusal(networks.get(trial.network).to_json()))


def _undivided(trial: Trial, machine: Machine) -> str:
    """Return why a trial cannot train on several devices, or ""."""
    framework, kind = recipes.load(trial.framework), recipes.device_of(trial.device_kind)
    local = trial.devices // trial.nodes
    if kind == "cuda" and local > machine.devices:
        return f"{local} GPUs asked for, this machine has {machine.devices}"
    if trial.nodes > machine.nodes:
        return (f"{trial.nodes} nodes asked for, this allocation has {machine.nodes}: "
                f"dlbench run --on slurm,nodes={trial.nodes}")
    if not framework.parallel:
        return (f"{framework.title} trains on one device here: "
                f"configs/frameworks/{trial.framework}.yaml has no key parallel")
    if (framework.parallel.has_ranks(trial.strategy)
            and kind in framework.recipe(trial.release).container):
        return (f"{framework.title} {trial.release} runs in a container, where its ranks could not "
                "reach the driver's socket: several devices need a release that is installed")
    if kind in framework.parallel.reasons:
        return framework.parallel.reasons[kind]
    if trial.nodes > 1 and not framework.parallel.nodes:
        return (f"{framework.title} trains on one node here: "
                f"configs/frameworks/{trial.framework}.yaml has no key parallel.nodes")
    known = framework.parallel.strategies_of(kind, trial.nodes)
    if trial.strategy not in known:
        return (f"{framework.title} has no strategy {trial.strategy} on {kind}: "
                f"it has {', '.join(known)}")
    if trial.batch * trial.devices != trial.global_batch:
        return (f"a global batch of {trial.global_batch} does not divide into {trial.devices} "
                "equal parts")
    return ""
