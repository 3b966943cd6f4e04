"""Measures the machine's peaks in the campaign itself: of matrix products, and of its memory.

Each framework of the campaign that offers a product (`Runner.product`) multiplies large square
matrices at the campaign's threads and precisions, timed by the protocol's loop. The best window
counts, because a peak is a bound. In fp32 the same worker also reads and writes arrays that fit no
cache (`Runner.stream`). After the last process the best framework measures again, which shows a
machine that slowed down.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.campaign.session import Session
from harness.environments import recipes
from harness.environments.store import Environment
from harness.plan.planner import Trial
from harness.workers.worker import Failed, Unsupported, Worker
from networks.work import FLOAT_BYTES

SIZES = {"cpu": (1024, 2048, 4096), "cuda": (4096, 8192)}
STREAM_ELEMENTS = {"cpu": 2**26, "cuda": 2**28}  # float32: 256 MiB and 1 GiB, read and written
LONGEST_PRODUCT_SECONDS = 0.5  # larger sizes are left out: one core gains nothing from them
WINDOWS = 5
WINDOW_SECONDS = 0.2
LIMIT_SECONDS = 120.0
SLOWED = 0.9  # of the first peak; less at the end is a concern
NUMPY = "runners.reference.runner"  # needs NumPy alone, so every worker's interpreter runs it

# device_kind, threads, precision, framework, flops (per second), size, when, reason, and in fp32
# bytes_per_second
Peak = dict[str, Any]


def measure(trials: Sequence[Trial], session: Session) -> list[Peak]:
    """Measure what frameworks reach at the threads and precisions of `trials`.

    On CPUs every framework is measured, because each has its own libraries; NumPy replaces them if
    none offers a product. On GPUs one framework is enough, because all call the vendor's library
    (on an H200 PyTorch and JAX reached 51.4 and 51.6 TFLOP/s in fp32, 363 and 379 in tf32).
    """
    found: list[Peak] = []
    for trial in _contenders(trials, session):
        if trial.device_kind == "cpu" or not _best(found, trial):
            found.append(_measure(trial, session, "before"))
    for trial in _contenders(trials, session):
        if trial.device_kind == "cpu" and trial.precision == "fp32" and not _best(found, trial):
            found.append(_measure(trial, session, "before", NUMPY))
    return found


def measure_again(trials: Sequence[Trial], peaks: Sequence[Peak], session: Session) -> list[Peak]:
    """Measure each best one of `peaks` once more, after the campaign."""
    again = []
    for trial in _contenders(trials, session):
        best = _best(peaks, trial)
        if best and best["framework"] in (trial.framework, "numpy"):
            module = NUMPY if best["framework"] == "numpy" else ""
            again.append(_measure(trial, session, "after", module))
            # NumPy replaces several frameworks: once is enough.
            peaks = [peak for peak in peaks if _key(peak) != _key(best)]
    return again


def concerns(peaks: Sequence[Peak]) -> list[str]:
    """Say where the machine was slower after the campaign than before it."""
    reached: dict[str, dict[Any, float]] = {"before": {}, "after": {}}
    for peak in peaks:
        if peak["flops"]:
            reached[peak["when"]][(*_key(peak), peak["framework"])] = peak["flops"]
    before = reached["before"]
    return [f"the {key[2]} peak fell from {_rate(before[key])} to {_rate(flops)} during the "
            "campaign: the machine slowed down, or others computed on it"
            for key, flops in reached["after"].items() if flops < SLOWED * before.get(key, 0.0)]


def _contenders(trials: Sequence[Trial], session: Session) -> Iterator[Trial]:
    """Yield a planned trial for each framework, threads and precision; fp32 always is one."""
    seen = set()
    for planned in trials:
        environment = session.environments.get(f"{planned.framework}=={planned.release}")
        if planned.status != "planned" or not isinstance(environment, Environment):
            continue
        for precision in dict.fromkeys(("fp32", planned.precision)):
            key = (planned.framework, planned.device_kind, planned.threads, precision)
            if key not in seen:
                seen.add(key)
                yield replace(planned, precision=precision, devices=1, ranks=1, strategy="",
                              global_batch=0)


def _measure(trial: Trial, session: Session, when: str, module: str = "") -> Peak:
    framework = "numpy" if module == NUMPY else trial.framework
    peak: Peak = {"device_kind": trial.device_kind, "threads": trial.threads,
                  "precision": trial.precision, "framework": framework, "flops": None, "size": None,
                  "when": when, "reason": ""}
    where = f"{trial.device_kind}-t{trial.threads}-{trial.precision}"
    log = session.logs / f"peak-{framework}-{where}-{when}.log"
    try:
        # An engine has no product of its own; its framework's runner may have one.
        runner = module or recipes.load(trial.framework).runner
        with session.start(trial, log, runner) as worker:
            peak["flops"], peak["size"] = _reach(worker, trial)
            if trial.precision == "fp32":
                peak["bytes_per_second"] = _stream(worker, trial)
    except (Failed, Unsupported) as error:
        peak["reason"] = str(error)
    reached = _rate(peak["flops"]) if peak["flops"] else f"none: {peak['reason']}"
    # 0 threads are the framework's default.
    threads = f", {trial.threads} threads" if trial.threads else ""
    session.listener.note(f"matrix-product peak {when} the trials: {framework}, {trial.precision}, "
                          f"{trial.device_kind}{threads}: {reached}")
    return peak


def _reach(worker: Worker, trial: Trial) -> tuple[float, int]:
    """Return the most operations per second of any window of any size, and that size."""
    best, best_size = 0.0, 0
    for size in SIZES[trial.device_kind]:
        flops = 2 * size**3
        if best and flops / best > LONGEST_PRODUCT_SECONDS:
            break
        reached = flops / _step_seconds(worker, trial, "peak", size=size)
        if reached > best:
            best, best_size = reached, size
    return best, best_size


def _stream(worker: Worker, trial: Trial) -> float | None:
    """Return the most bytes per second, read and written, of any window; None if unsupported."""
    elements = STREAM_ELEMENTS[trial.device_kind]
    try:
        seconds = _step_seconds(worker, trial, "bandwidth", elements=elements)
    except Unsupported:
        return None
    return 2 * FLOAT_BYTES * elements / seconds


def _step_seconds(worker: Worker, trial: Trial, command: str, **task: int) -> float:
    """Find a window's length by a pilot; return a step's seconds in the shortest window."""
    def shortest(steps: int, windows: int) -> float:
        answer = worker.ask(command, LIMIT_SECONDS, steps=steps, windows=windows, **task,
                            device=trial.device_kind, threads=trial.threads,
                            precision=trial.precision)
        return float(min(stop - start for start, stop in answer["windows"]))

    steps = max(1, math.ceil(WINDOW_SECONDS / shortest(1, 2)))
    return shortest(steps, WINDOWS) / steps


def _best(peaks: Sequence[Peak], trial: Trial) -> Peak | None:
    key = trial.device_kind, trial.threads, trial.precision
    reached = [peak for peak in peaks if peak["flops"] and _key(peak) == key]
    return max(reached, key=lambda peak: float(peak["flops"]), default=None)


def _rate(flops: float) -> str:
    return f"{flops / 1e12:.3g} TFLOP/s" if flops >= 1e12 else f"{flops / 1e9:.3g} GFLOP/s"


def _key(peak: Peak) -> tuple[str, int, str]:
    return peak["device_kind"], peak["threads"], peak["precision"]
