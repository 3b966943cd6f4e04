"""Breaks the step of one trial down into parts that add up to its timed length.

The parts come from a trace of the GPU (kernels.csv) or from the framework's profiler on a CPU
(operators.csv), each moment counted once. A traced step is not the timed step: clocks differ and
records slow the host. The difference remains a part of its own, the residual. See
docs/method/traces.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign
from analysis.records.text import BadRecords
from analysis.statistics import bootstrap
from analysis.traces.kernels import BUSY, CLASSES, HIDDEN, IDLE, NO_TRACE, UNCLASSIFIED, WALL
from analysis.trials import summary

RESIDUAL = "residual"
PARTS = (*CLASSES, IDLE, RESIDUAL)
# Share of the busy time by which its parts may miss it: rounding in the files.
WHOLE = 0.01
# Shares of a step that a trace may lack or have in excess. A CPU's profiler writes its records
# within the operators; XLA's command buffers, off in a trace, overlap kernels (4 % on an H200).
MOST_MISSING = {"cuda": 0.1, "cpu": 0.25}
MOST_EXCESS = 0.3
# Share of the busy time in kernels that did not run equally often in every step.
MOST_BROKEN = 0.1


class NotExplained(BadRecords):
    """A trial whose step cannot be broken down; the message says why and what to do."""


@dataclass(frozen=True)
class Breakdown:
    """A step in parts.

    `rows` holds class, arithmetic, transposition, kernel, count and own `seconds` of each activity.
    `parts` are the seconds of each of `PARTS`, together `step_seconds`. `wall_seconds` is a step
    under the trace. `exact` says whether the trace knows which activities hid which.
    """

    trial: Mapping[str, Any]
    times: list[bootstrap.Times]
    step_seconds: float
    rows: pd.DataFrame
    parts: "pd.Series[float]"
    wall_seconds: float
    exact: bool

    @property
    def busy_seconds(self) -> float:
        return float(self.rows["seconds"].sum())

    @property
    def unclassified(self) -> float:
        """Share of the busy time whose kernels no rule knows."""
        seconds = self.rows.loc[self.rows["class"] == UNCLASSIFIED, "seconds"].sum()
        return float(seconds) / self.busy_seconds


def of_trial(campaign: Campaign, name: str) -> Breakdown:
    """Break a trial's step down. Raises NotExplained without a time or a trace that fits it."""
    trial = next(trial for trial in campaign.trials if trial["trial"] == name)
    times = summary.times_of(summary.without_diverged(campaign), name)
    if not times:
        raise NotExplained(f"{name}: no process of it ended well, so there is no step to break "
                           "down: run it again")
    traced = campaign.rows("kernels" if trial["device_kind"] == "cuda" else "operators", name)
    return reconcile(trial, times, _whole(traced, trial))


def reconcile(trial: Mapping[str, Any], times: list[bootstrap.Times],
              traced: pd.DataFrame) -> Breakdown:
    """Reconcile a whole trace with the timed step by an idle part and a residual.

    Idle is the timed step less the busy time, at most the trace's idle time, because tracing slows
    the host. The rest is residual: the same kernels took another time when they were timed.
    """
    step = bootstrap.estimate(times).value
    rows = own_seconds(traced)
    busy = rows["seconds"].sum()
    wall = _of(traced, WALL) or _of(traced, BUSY) + _of(traced, IDLE)
    idle = min(max(step - busy, 0.0), max(wall - busy, 0.0))
    residual = step - busy - idle
    if not -MOST_EXCESS * step <= residual <= MOST_MISSING[trial["device_kind"]] * step:
        raise NotExplained(
            f"{trial['trial']}: the parts do not add up: a timed step takes {1e3 * step:.4g} ms, "
            f"and the trace accounts for {1e3 * (step - residual):.4g} ms; it is not whole, of "
            "other work, or others computed beside it: run the suite again")
    parts = rows.groupby("class")["seconds"].sum()
    parts = pd.concat([parts, pd.Series({IDLE: idle, RESIDUAL: residual})])
    parts = parts.reindex([*PARTS]).dropna()
    exact = bool(traced["exposed_seconds_per_step"].notna().any())
    return Breakdown(trial, times, step, rows, parts, wall, exact)


def own_seconds(traced: pd.DataFrame) -> pd.DataFrame:
    """Return the activities with their own `seconds` of a step.

    Without exposed times the classes are laid over each other as a whole: computing first, then as
    much of collectives and copies as the busy time leaves.
    """
    rows = traced[traced["class"].isin(CLASSES)].rename(columns={"count_per_step": "count"})
    if rows["exposed_seconds_per_step"].notna().all():
        return rows.assign(seconds=rows["exposed_seconds_per_step"])
    left = _of(traced, BUSY)
    ranks = rows["class"].map(HIDDEN).fillna(0)
    shares = pd.Series(0.0, index=rows.index)
    for rank in sorted(ranks.unique()):
        total = rows.loc[ranks == rank, "seconds_per_step"].sum()
        shares[ranks == rank] = min(1.0, left / total) if total else 0.0
        left -= min(left, total)
    return rows.assign(seconds=rows["seconds_per_step"] * shares)


def _whole(traced: pd.DataFrame, trial: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of a trial's trace. Raises NotExplained unless it is whole."""
    name = trial["trial"]
    file, key = (("kernels.csv", "trace=true") if trial["device_kind"] == "cuda"
                 else ("operators.csv", "profile=true"))
    refused = traced.loc[traced["class"] == NO_TRACE, "reason"]
    if len(refused):
        raise NotExplained(f"{name}: {file} says why there is no trace: {refused.iloc[0]}")
    if not traced["class"].isin(CLASSES).any():
        if trial["device_kind"] == "cpu" and trial["devices"] > 1:
            raise NotExplained(f"{name}: several CPU devices have no profile; a report takes their "
                               "step apart where its suite says phases: true")
        raise NotExplained(f"{name}: {file} holds nothing of it: `dlbench run` the suite with "
                           f"{key}, or again with --resume {key}")
    rows, busy = own_seconds(traced), _of(traced, BUSY)
    if not math.isclose(rows["seconds"].sum(), busy, rel_tol=WHOLE):
        covered = 1e3 * rows["seconds"].sum()
        raise NotExplained(f"{name}: its trace is not whole: the activities cover {covered:.4g} ms "
                           f"of a step, and its busy time is {1e3 * busy:.4g} ms; delete its rows "
                           f"of {file} and `dlbench run --resume`")
    broken = rows.loc[rows["count"] % 1 != 0, "seconds"].sum()
    if broken > MOST_BROKEN * busy:
        raise NotExplained(f"{name}: its trace is not of whole steps: what makes "
                           f"{100 * broken / busy:.0f} % of the time did not run equally often in "
                           f"every step; delete its rows of {file} and `dlbench run --resume`")
    return traced


def _of(traced: pd.DataFrame, kind: str) -> float:
    return float(traced.loc[traced["class"] == kind, "seconds_per_step"].sum())
