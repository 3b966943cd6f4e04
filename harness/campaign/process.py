"""One process of one trial: start its worker, check it, warm it up, find the window's length, time the windows.

The first steps run one by one, so that frameworks can be compared loss by loss; then windows double until one is long enough. All
windows are kept; those before the timed ones have negative numbers.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import networks
from harness.campaign import step_parts as phases
from harness.data.inputs import Inputs
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.proof import copies
from harness.proof.checks import Checks, start, task_of
from harness.proof.judge import OF_REFERENCE, Verdict
from harness.telemetry.sampler import Sampler, kept
from harness.workers.pool import Shelf
from harness.workers.worker import Failed, Unsupported, Worker

SINGLE_STEPS = 8
UNREACHED = "where GPUs do not reach one another directly (IOMMU, ACS), NCCL_P2P_DISABLE=1 sends through the host's memory"
LONGEST_WINDOW = 2**20  # steps; a faster step than a microsecond is a missing synchronisation, not a measurement


@dataclass(frozen=True)
class Sight:
    """What a watcher sees of a running process: the window just done and how many are to come."""

    trial: Trial
    process: int
    phase: str  # checked (ahead of all), checking, starting, building, warm-up, timing, tracing
    window: int = 0
    step_seconds: float = math.nan
    loss: float = math.nan


@dataclass
class Outcome:
    """A finished process: its row for processes.csv and its rows for windows.csv, counters.csv and phases.csv."""

    row: dict[str, Any]
    windows: list[dict[str, Any]] = field(default_factory=list)
    counters: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def shortage(self) -> dict[str, Any] | None:
        """The row of what ran out of memory: the process's own, or one of a part of its step."""
        return next((row for row in (self.row, *self.phases) if str(row.get("reason")).startswith("out_of_memory")), None)

    @property
    def timed_out(self) -> bool:
        return self.row["status"] == "failed" and str(self.row["reason"]).startswith("timed_out")


@dataclass(frozen=True)
class Bench:
    """What all processes of a campaign share."""

    suite: Suite
    environments: dict[str, Environment | BuildFailed]
    inputs: Inputs
    checks: Checks
    logs: Path
    watch: Callable[[Sight], None]
    sampler: Sampler = field(default_factory=Sampler)  # samples nothing
    shelf: Shelf = field(default_factory=Shelf)


@dataclass
class Ready:
    """A process whose worker is built and fed and waits to be timed; without a worker, its outcome says why."""

    trial: Trial
    outcome: Outcome
    worker: Worker | None = None


def run_process(bench: Bench, trial: Trial, process: int, order: int) -> Outcome:
    """Run one process to its end. Whatever happens to its worker becomes the outcome's status and reason."""
    ready = get_ready(bench, trial, process, order)
    with ready.worker or contextlib.nullcontext():
        return time_process(bench, ready)


def get_ready(bench: Bench, trial: Trial, process: int, order: int) -> Ready:
    """Start a process's worker, check it where that is its part, and let it build and take what it trains on."""
    log = bench.logs / f"{trial.trial}-{process}.log"
    outcome = Outcome({
        "trial": trial.trial, "process": process, "order": order, "status": "ok", "reason": "",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    })
    ready = Ready(trial, outcome)
    log.unlink(missing_ok=True)
    with _noted(trial, outcome):
        if process == 0 and not trial.dropout:
            bench.watch(Sight(trial, process, "checking"))
            checked = bench.checks.of(trial)
            outcome.row.update(_identity(checked.hello), log=f"{bench.logs.name}/{checked.log.name}")
            _note_check(outcome, checked.verdict)
        bench.watch(Sight(trial, process, "starting"))
        outcome.row["log"] = f"{bench.logs.name}/{log.name}"
        worker = _kept(bench, trial) or start(bench.environments[f"{trial.framework}=={trial.release}"], trial, log)
        outcome.row["log"] = f"{bench.logs.name}/{worker.log.name}"
        bench.checks.at_work.add(worker)
        try:
            outcome.row.update(_identity(worker.ask("hello", bench.suite.limits.start)))
            if trial.dropout:  # its timed losses prove little, so each process proves itself
                bench.watch(Sight(trial, process, "checking"))
                _note_check(outcome, bench.checks.judge.judge(worker, networks.get(trial.network), task_of(trial)))
            bench.watch(Sight(trial, process, "building"))
            began = time.monotonic()
            outcome.row.update(parameters=prepare(bench, trial, worker), build_seconds=time.monotonic() - began)
        except BaseException:
            worker.end()
            bench.checks.at_work.discard([worker])
            raise
        ready.worker = worker
    return ready


def time_process(bench: Bench, ready: Ready) -> Outcome:
    """Time a process that is ready; its worker lives on, but not where it failed."""
    trial, outcome = ready.trial, ready.outcome
    if ready.worker:
        gpus = trial.devices if trial.device_kind == "cuda" else 0
        with _noted(trial, outcome), bench.sampler.recording(gpus):
            _run(bench, trial, ready.worker, outcome)
        if outcome.row["status"] != "ok":
            ready.worker.end()
    _number(outcome.windows)
    outcome.counters = kept(bench.sampler.samples, outcome.windows)
    return outcome


def _kept(bench: Bench, trial: Trial) -> Worker | None:
    """Take a worker from the shelf that still answers; one that died or hung while it rested ends, and costs this trial nothing."""
    while worker := bench.shelf.take(trial):
        try:
            worker.ask("hello", bench.suite.limits.start)
            return worker
        except Failed:
            worker.end()
            bench.checks.at_work.discard([worker])
    return None


@contextlib.contextmanager
def _noted(trial: Trial, outcome: Outcome) -> Iterator[None]:
    """Note what a worker refuses or fails at in its outcome; where GPUs seem never to have met, with what helps."""
    try:
        yield
    except Unsupported as refusal:
        outcome.row.update(status="unsupported", reason=str(refusal))
    except Failed as failure:
        began = outcome.row.get("device_name") and not outcome.windows  # it has said hello and never trained
        hung = failure.kind == "timed_out" and not failure.reason.startswith(OF_REFERENCE)
        apart = hung and trial.device_kind == "cuda" and trial.devices > 1 and began
        outcome.row.update(status="failed", reason=f"{failure}; {UNREACHED}" if apart else str(failure))


def _identity(hello: Mapping[str, Any]) -> dict[str, Any]:
    return {"release": hello.get("release", ""), "device_name": hello.get("device_name", "")}


def prepare(bench: Bench, trial: Trial, worker: Worker) -> int:
    """Let a worker build the trial's network and give it weights and batches; return the parameters that it built."""
    network, limit = networks.get(trial.network), bench.suite.limits.build
    built = worker.ask("build", limit, network=network.to_json(), batch=trial.batch, dropout=True, seed=bench.suite.seed,
                       **task_of(trial))
    worker.ask("load", limit, weights=str(bench.inputs.weights(network)))
    residence = "device" if trial.data == "device" else "host"
    worker.ask("feed", limit, batches=str(bench.inputs.batches(network, trial.global_batch, trial.data)), residence=residence)
    return int(built["parameters"])


def _run(bench: Bench, trial: Trial, worker: Worker, outcome: Outcome) -> None:
    suite = bench.suite
    last = 0.0
    for _ in range(SINGLE_STEPS):
        last = _window(bench, trial, worker, outcome, 1, "warm-up")
    length = 1
    while last < suite.window_seconds:
        length *= 2
        if length > LONGEST_WINDOW:
            raise Failed("protocol", f"{LONGEST_WINDOW} steps in {last:.3g} s: the runner does not wait for its device")
        last = _window(bench, trial, worker, outcome, length, "warm-up")
    for _ in range(suite.windows):
        _window(bench, trial, worker, outcome, length, "timing")
    outcome.row.update(window_steps=length)
    if trial.devices > 1:
        _compare_copies(worker, trial, suite.limits.window, outcome)
    if suite.phases:
        bench.watch(Sight(trial, outcome.row["process"], "parts of the step"))
        outcome.phases = phases.measure(worker, suite, trial, outcome.row["process"], length)


def _compare_copies(worker: Worker, trial: Trial, limit: float, outcome: Outcome) -> None:
    """Note how far the devices' copies differ, or have differed in the check; raise Failed where that is more than rounding."""
    found = copies.compare(worker, trial.devices, limit)
    outcome.row["copies_error"] = float(np.fmax(outcome.row.get("copies_error", math.nan), found.error))
    if found.fault:
        raise Failed("different", found.fault)


def _window(bench: Bench, trial: Trial, worker: Worker, outcome: Outcome, steps: int, phase: str) -> float:
    """Run one window, keep it and return its seconds. A loss that is not finite ends the process as diverged."""
    with bench.sampler.around_window():
        answer = worker.ask("run", bench.suite.limits.window, steps=steps)
    seconds = answer["stop"] - answer["start"]
    done = outcome.windows[-1]["last_step"] if outcome.windows else 0
    outcome.windows.append({
        "trial": trial.trial, "process": outcome.row["process"], "phase": phase, "steps": answer["steps"],
        "last_step": done + answer["steps"], "start": answer["start"], "stop": answer["stop"], "seconds": seconds,
        "step_seconds": seconds / answer["steps"], "loss": answer["loss"],
    })
    outcome.row["peak_memory_bytes"] = answer["peak_memory_bytes"]
    timed = sum(window["phase"] == "timing" for window in outcome.windows)
    bench.watch(Sight(trial, outcome.row["process"], phase, timed, seconds / answer["steps"], answer["loss"]))
    if not math.isfinite(answer["loss"]):
        raise Failed("diverged", f"the loss is {answer['loss']} after step {done + steps}")
    return float(seconds)


def _note_check(outcome: Outcome, verdict: Verdict) -> None:
    """Keep the verdict. A different network is timed all the same: its row says so and is not ranked."""
    if verdict.verdict == "unsupported":
        raise Unsupported(verdict.reason)
    if verdict.failure:  # nothing more can be asked of this worker: one that hangs would hang again
        raise Failed(verdict.failure, verdict.reason.partition(": ")[2])
    outcome.row.update(check=verdict.verdict, check_reason=verdict.reason, loss_error=verdict.loss_error,
                       gradient_error=verdict.gradient_error, trajectory_error=verdict.trajectory_error,
                       copies_error=verdict.copies_error)


def _number(windows: list[dict[str, Any]]) -> None:
    """Give timed windows the numbers 0, 1, ... and those before them -n ... -1."""
    before = sum(window.pop("phase") == "warm-up" for window in windows)
    for position, window in enumerate(windows):
        window["window"] = position - before
