"""The machine's peaks, measured in the campaign itself: of matrix products, and of its memory.

Each framework of the campaign that offers a product (`Runner.product`) multiplies large square matrices at the campaign's threads
and precisions, timed by the protocol's one loop. The best window counts, because a peak is a bound. In the same worker, where it
measures fp32, one operation reads and writes arrays that fit no cache (`Runner.stream`). After the last process the best
framework does all that again: a machine that slowed down meanwhile shows there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.campaign.session import Session
from harness.environments.store import Environment
from harness.plan.planner import Trial
from harness.workers.worker import Failed, Unsupported, Worker
from networks.work import FLOAT_BYTES

SIZES = {"cpu": (1024, 2048, 4096), "cuda": (4096, 8192)}
STREAM_ELEMENTS = {"cpu": 2**26, "cuda": 2**28}  # float32: 256 MiB and 1 GiB are read, and as many written
LONGEST_PRODUCT_SECONDS = 0.5  # a larger size that would take longer is left out: one core gains nothing from it
WINDOWS = 5
WINDOW_SECONDS = 0.2
LIMIT_SECONDS = 120.0
SLOWED = 0.9  # of the first peak; less at the end is worth a concern
NUMPY = "runners.reference.runner"  # needs NumPy alone, so every worker's interpreter runs it

# device_kind, threads, precision, framework, flops (a second), size, when, reason, and with fp32 bytes_per_second
Peak = dict[str, Any]


def measure(trials: Sequence[Trial], session: Session) -> list[Peak]:
    """Measure what frameworks reach at the threads and precisions of `trials`; NumPy stands in where none can, on CPUs.

    On CPUs every framework is measured, for they bring their own libraries. On GPUs the first that can is enough: all call the
    vendor's (on an H200 PyTorch and JAX reached 51.4 and 51.6 TFLOP/s in fp32, 363 and 379 in tf32).
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
            again.append(_measure(trial, session, "after", NUMPY if best["framework"] == "numpy" else ""))
            peaks = [peak for peak in peaks if _key(peak) != _key(best)]  # NumPy's stands for several frameworks: once is enough
    return again


def concerns(peaks: Sequence[Peak]) -> list[str]:
    """Say where the machine was slower after the campaign than before it."""
    reached: dict[str, dict[Any, float]] = {"before": {}, "after": {}}
    for peak in peaks:
        if peak["flops"]:
            reached[peak["when"]][(*_key(peak), peak["framework"])] = peak["flops"]
    return [f"the {key[2]} peak fell from {reached['before'][key]:.3g} to {flops:.3g} FLOP/s during the campaign: the machine "
            "slowed down, or others computed on it"
            for key, flops in reached["after"].items() if flops < SLOWED * reached["before"].get(key, 0.0)]


def _contenders(trials: Sequence[Trial], session: Session) -> Iterator[Trial]:
    """One planned trial for each framework, thread count and precision; fp32 always, since it may stand in for the others."""
    seen = set()
    for planned in trials:
        environment = session.environments.get(f"{planned.framework}=={planned.release}")
        if planned.status != "planned" or not isinstance(environment, Environment):
            continue
        for precision in dict.fromkeys(("fp32", planned.precision)):
            key = (planned.framework, planned.device_kind, planned.threads, precision)
            if key not in seen:
                seen.add(key)
                yield replace(planned, precision=precision, devices=1, ranks=1, strategy="", global_batch=0)


def _measure(trial: Trial, session: Session, when: str, module: str = "") -> Peak:
    framework = "numpy" if module == NUMPY else trial.framework
    peak: Peak = {"device_kind": trial.device_kind, "threads": trial.threads, "precision": trial.precision,
                  "framework": framework, "flops": None, "size": None, "when": when, "reason": ""}
    log = session.logs / f"peak-{framework}-{trial.device_kind}-t{trial.threads}-{trial.precision}-{when}.log"
    try:
        with session.start(trial, log, module) as worker:
            peak["flops"], peak["size"] = _reach(worker, trial)
            if trial.precision == "fp32":
                peak["bytes_per_second"] = _stream(worker, trial)
    except (Failed, Unsupported) as error:
        peak["reason"] = str(error)
    reached = f"{peak['flops'] / 1e9:,.4g} GFLOP/s" if peak["flops"] else f"none: {peak['reason']}"
    session.listener.note(f"peak of {framework} in {trial.precision}, {trial.device_kind}, {trial.threads} threads: {reached}")
    return peak


def _reach(worker: Worker, trial: Trial) -> tuple[float, int]:
    """The most operations a second that any window of any size reached, and that size."""
    task = {"device": trial.device_kind, "threads": trial.threads, "precision": trial.precision}
    best, best_size = 0.0, 0
    for size in SIZES[trial.device_kind]:
        flops = 2 * size**3
        if best and flops / best > LONGEST_PRODUCT_SECONDS:
            break
        one = _shortest(worker.ask("peak", LIMIT_SECONDS, size=size, steps=1, windows=2, **task))
        steps = max(1, math.ceil(WINDOW_SECONDS / one))
        seconds = _shortest(worker.ask("peak", LIMIT_SECONDS, size=size, steps=steps, windows=WINDOWS, **task))
        if steps * flops / seconds > best:
            best, best_size = steps * flops / seconds, size
    return best, best_size


def _stream(worker: Worker, trial: Trial) -> float | None:
    """The most bytes a second, read and written, that any window reached; None where the framework offers no such operation."""
    elements = STREAM_ELEMENTS[trial.device_kind]
    task = {"elements": elements, "device": trial.device_kind, "threads": trial.threads, "precision": trial.precision}
    try:
        one = _shortest(worker.ask("bandwidth", LIMIT_SECONDS, steps=1, windows=2, **task))
        steps = max(1, math.ceil(WINDOW_SECONDS / one))
        seconds = _shortest(worker.ask("bandwidth", LIMIT_SECONDS, steps=steps, windows=WINDOWS, **task))
    except Unsupported:
        return None
    return steps * 2 * FLOAT_BYTES * elements / seconds


def _shortest(answer: Mapping[str, Any]) -> float:
    return float(min(stop - start for start, stop in answer["windows"]))


def _best(peaks: Sequence[Peak], trial: Trial) -> Peak | None:
    reached = [peak for peak in peaks if peak["flops"] and _key(peak) == (trial.device_kind, trial.threads, trial.precision)]
    return max(reached, key=lambda peak: float(peak["flops"]), default=None)


def _key(peak: Peak) -> tuple[str, int, str]:
    return peak["device_kind"], peak["threads"], peak["precision"]
