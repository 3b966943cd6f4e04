"""Profiles each trial on a CPU: one more worker, not timed, with the framework's own profiler.

What its threads ran becomes rows of operators.csv, in the columns of kernels.csv. Each moment
counts once: a call hides its caller, and operators that run at the same time share it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.traces import kernels, operators
from analysis.traces.exposure import exposed, innermost
from harness.campaign.session import Session
from harness.campaign.tracing import Pass, Recording
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.answers import Profiled

# Otherwise MXNet's profiler sees bulks of operators.
UNBULKED = {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "0"}
ONE_DEVICE = ("operators are profiled on one CPU device; of several, phases: true takes the step "
              "apart")


def wanted(suite: Suite, trial: Trial) -> bool:
    return suite.profile and trial.device_kind == "cpu"


def profile(session: Session, trial: Trial) -> Recording:
    """Return what profiles a trial on one device into rows of operators.csv."""
    profiling = Recording(session, trial, Pass("profile", Profiled, UNBULKED, rows_of), "operators")
    profiling.reason = ONE_DEVICE if trial.devices > 1 else ""
    return profiling


def rows_of(trial: str, profiled: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turn (operator, thread, start, end) into rows of operators, then wall, busy and idle."""
    steps = profiled["steps"]
    threads: dict[str, list[Any]] = {}
    for span in profiled["spans"]:
        threads.setdefault(str(span[1]), []).append(span)
    keys: list[tuple[str, str]] = []  # class and operator of each call
    pieces: list[Any] = []  # (call, start, end) of what each call ran itself
    for spans in threads.values():
        calls, starts, ends = innermost([span[2] for span in spans], [span[3] for span in spans])
        pieces += zip(calls + len(keys), starts, ends, strict=True)
        keys += [(kind, span[0]) for kind, span in zip(classes_of(spans), spans, strict=True)]
    pieces = [piece for piece in pieces if keys[piece[0]][0] != operators.WRAPPER]
    owners, begins, finishes = np.array(pieces, float).reshape(-1, 3).T
    own = exposed(begins, finishes, np.zeros(len(owners), int))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for key in keys:
        if key[0] != operators.WRAPPER:
            row = rows.setdefault(key, {
                "trial": trial, "steps": steps, "class": key[0], "kernel": kernels.shorten(key[1]),
                "count_per_step": 0, "seconds_per_step": 0.0, "exposed_seconds_per_step": 0.0})
            row["count_per_step"] += 1
    for owner, length, alone in zip(owners.astype(int), finishes - begins, own, strict=True):
        rows[keys[owner]]["seconds_per_step"] += length / steps
        rows[keys[owner]]["exposed_seconds_per_step"] += alone / steps
    for row in rows.values():
        row["count_per_step"] /= steps
    wall, busy = profiled["wall_seconds"] / steps, float(own.sum()) / steps
    last = {kernels.WALL: wall, kernels.BUSY: busy, kernels.IDLE: max(0.0, wall - busy)}
    same = {"trial": trial, "steps": steps}
    return [*rows.values(), *({**same, "class": kind, "seconds_per_step": seconds}
                              for kind, seconds in last.items())]


def classes_of(spans: Sequence[Sequence[Any]]) -> list[str]:
    """Classify the calls of one thread; all that the optimizer calls belongs to the optimizer."""
    classes = [operators.classify(span[0]) for span in spans]
    until = -np.inf  # the end of the optimizer's last call
    order = sorted(range(len(spans)), key=lambda place: (spans[place][2], -spans[place][3]))
    for place in order:
        _, _, start, end = spans[place]
        if classes[place] == kernels.OPTIMISER:
            until = max(until, end)
        elif classes[place] != operators.WRAPPER and start < until:
            classes[place] = kernels.OPTIMISER
    return classes
