"""Takes the step of one trial apart into parts that add up to its timed length.

The parts come from a trace of the GPU (kernels.csv) or from the framework's own profiler on a CPU (operators.csv), each moment
counted once, and their sum is the busy time. A trace is not the timed step: kernels may run at another clock in it, and records
make the host slower. So its busy time is reconciled with the untraced time here, and what cannot be reconciled stays a part of its
own, the residual. docs/method/traces.md argues it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.records.reader import BadRecords, Campaign
from analysis.statistics import bootstrap
from analysis.traces.kernels import BUSY, CLASSES, HIDDEN, IDLE, NO_TRACE, UNCLASSIFIED, WALL
from analysis.trials import summary

RESIDUAL = "residual"
PARTS = (*CLASSES, IDLE, RESIDUAL)
WHOLE = 0.01  # of the busy time, that its parts may miss it by: rounding of what was written
# Of a step: what a trace may lack of it, or have beyond it, and still be one of the step that was timed. Profilers of a CPU write
# their records within the operators; XLA's command buffers, which a trace goes without, let kernels overlap (4 % on an H200).
MOST_MISSING = {"cuda": 0.1, "cpu": 0.25}
MOST_EXCESS = 0.3
MOST_BROKEN = 0.1  # of the busy time, in kernels that did not run equally often in every step


class NotExplained(BadRecords):
    """A trial whose step cannot be taken apart; the message says why and what to do."""


@dataclass(frozen=True)
class Breakdown:
    """A step in parts. `rows` holds class, arithmetic, transposition, kernel, count and `seconds` of each activity's own time;
    `parts` the seconds of each of `PARTS` that occurs, together `step_seconds`."""

    trial: Mapping[str, Any]
    times: list[bootstrap.Times]
    step_seconds: float
    rows: pd.DataFrame
    parts: "pd.Series[float]"
    wall_seconds: float  # of a step under the trace
    exact: bool  # whether the trace says which activities hid which

    @property
    def busy_seconds(self) -> float:
        return float(self.rows["seconds"].sum())

    @property
    def unclassified(self) -> float:
        """Share of the busy time whose kernels no rule knows."""
        return float(self.rows.loc[self.rows["class"] == UNCLASSIFIED, "seconds"].sum()) / self.busy_seconds


def of_trial(campaign: Campaign, name: str) -> Breakdown:
    """Take the trial apart. Raises NotExplained where nothing was timed or traced, or the trace does not fit the step."""
    trial = next(trial for trial in campaign.trials if trial["trial"] == name)
    own = replace(campaign, processes=campaign.processes[campaign.processes["trial"] == name],
                  windows=campaign.windows[campaign.windows["trial"] == name])
    times = summary.times_of(summary.without_diverged(own), name)
    if not times:
        raise NotExplained(f"{name}: no process of it ended well, so there is no step to take apart: run it again")
    table = campaign.kernels if trial["device_kind"] == "cuda" else campaign.operators
    return reconcile(trial, times, _whole(table[table["trial"] == name], trial))


def reconcile(trial: Mapping[str, Any], times: list[bootstrap.Times], traced: pd.DataFrame) -> Breakdown:
    """Make the activities of a whole trace and the timed step agree, by an idle part and a residual.

    The device idled for what the trace's busy time leaves of the timed step, but no longer than it did under the trace, where the
    host was slower. The rest, or what is missing, is residual: the same kernels took another time when they were timed.
    """
    step = bootstrap.estimate(times).value
    rows = own_seconds(traced)
    busy = rows["seconds"].sum()
    wall = _of(traced, WALL) or _of(traced, BUSY) + _of(traced, IDLE)
    idle = min(max(step - busy, 0.0), max(wall - busy, 0.0))
    residual = step - busy - idle
    if not -MOST_EXCESS * step <= residual <= MOST_MISSING[trial["device_kind"]] * step:
        raise NotExplained(
            f"{trial['trial']}: the parts do not add up: a timed step takes {1e3 * step:.4g} ms, and the trace accounts for "
            f"{1e3 * (step - residual):.4g} ms; it is not whole, of other work, or others computed beside it: run the suite again")
    parts = rows.groupby("class")["seconds"].sum()
    parts = pd.concat([parts, pd.Series({IDLE: idle, RESIDUAL: residual})]).reindex([*PARTS]).dropna()
    exact = bool(traced["exposed_seconds_per_step"].notna().any())
    return Breakdown(trial, times, step, rows, parts, wall, exact)


def own_seconds(traced: pd.DataFrame) -> pd.DataFrame:
    """Return the activities with their `seconds`: what each counts of a step, once and for all.

    Traces of older releases hold no exposed times. There the classes are laid over each other as a whole: computing first, then as
    much of collectives and of copies as the busy time leaves.
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
    """Return the rows of a trial's trace. Raises NotExplained unless they are those of a whole one."""
    name = trial["trial"]
    file, key = ("kernels.csv", "trace=true") if trial["device_kind"] == "cuda" else ("operators.csv", "profile=true")
    refused = traced.loc[traced["class"] == NO_TRACE, "reason"]
    if len(refused):
        raise NotExplained(f"{name}: {file} says why there is no trace: {refused.iloc[0]}")
    if not traced["class"].isin(CLASSES).any() and trial["device_kind"] == "cpu" and trial["devices"] > 1:
        raise NotExplained(f"{name}: several CPU devices have no profile; a report takes their step apart where its suite says "
                           "phases: true")
    if not traced["class"].isin(CLASSES).any():
        raise NotExplained(f"{name}: {file} holds nothing of it: `dlbench run` the suite with {key}, or again with --resume {key}")
    rows, busy = own_seconds(traced), _of(traced, BUSY)
    if not math.isclose(rows["seconds"].sum(), busy, rel_tol=WHOLE):
        raise NotExplained(f"{name}: its trace is not whole: the activities cover {1e3 * rows['seconds'].sum():.4g} ms of a step, "
                           f"and its busy time is {1e3 * busy:.4g} ms; delete its rows of {file} and `dlbench run --resume`")
    broken = rows.loc[rows["count"] % 1 != 0, "seconds"].sum()
    if broken > MOST_BROKEN * busy:
        raise NotExplained(f"{name}: its trace is not of whole steps: what makes {100 * broken / busy:.0f} % of the time did not "
                           f"run equally often in every step; delete its rows of {file} and `dlbench run --resume`")
    return traced


def _of(traced: pd.DataFrame, kind: str) -> float:
    return float(traced.loc[traced["class"] == kind, "seconds_per_step"].sum())
