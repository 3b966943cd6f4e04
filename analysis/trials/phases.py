"""The parts of a step: forward, backward, exposed aggregation and update, from phases.csv.

Nested variants of the step were timed in turn, window by window, so a part is the median of paired
differences. Hidden aggregation is its time alone less what it adds to the step.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import NOT_MEASURED, Estimate, Times
from analysis.strategies import table as strategies

# Name: the variant that has it, and the one that has all but it.
PARTS = {"forward": ("F", ""), "backward": ("FB", "F"), "exposed": ("FBA", "FB"),
         "update": ("FBAU", "FBA")}
# One device aggregates nothing: its FBA is FB once more.
ALONE = {**PARTS, "exposed": ("", ""), "update": ("FBAU", "FB")}
# Isolated is the aggregation alone, of buffers of the gradients' shapes.
WHOLE = {"step": "FBAU", "isolated": "A"}
HIDDEN = "hidden"
NAMES = (*PARTS, *WHOLE, HIDDEN)
Gather = Callable[["pd.Series[Any]"], list[Times]]


@lru_cache(maxsize=64)
def of_trial(campaign: Campaign, trial: str) -> dict[str, Estimate]:
    """Estimate each of `NAMES` in seconds a step; nan where its variants were not timed.

    Kept, as a report and each table of an aggregation study ask again.
    """
    settings = next(each for each in campaign.trials if each["trial"] == trial)
    devices, waits = settings["devices"], strategies.of(settings["strategy"]).after_backward
    table = _variants(campaign, trial)
    parts = PARTS if devices > 1 else ALONE
    processes = partial(_by_process, campaign=campaign, trial=trial)
    found = {name: _estimate(table, *variants, processes) for name, variants in parts.items()}
    found |= {name: _estimate(table, variant, "", processes) for name, variant in WHOLE.items()}
    return {**found, HIDDEN: _hidden(table, waits, processes) if devices > 1 else NOT_MEASURED}


def times_of(campaign: Campaign, trial: str, variant: str) -> list[Times]:
    """Collect the seconds a step of a variant's windows, one array a process."""
    table = _variants(campaign, trial)
    return _by_process(table[variant], campaign, trial) if variant in table else []


def table(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Add `NAMES` with `_low` and `_high`, in seconds a step, to `rows` of trials with phases."""
    timed = rows[rows["trial"].isin(campaign.phases["trial"])]
    parts = [{column: value for name, found in of_trial(campaign, trial).items()
              for column, value in found.columns(name).items()} for trial in timed["trial"]]
    columns = [column for name in NAMES for column in NOT_MEASURED.columns(name)]
    values = pd.DataFrame(parts, columns=columns, dtype=float)
    return pd.concat([timed.reset_index(drop=True), values], axis=1)


def remarks(own: pd.DataFrame, processes: int) -> list[str]:
    """Return which parts of a trial's step could not be timed, a sentence a reason."""
    missed = own[own["reason"] != ""]
    # Refusals name their part, so equal reasons differ in that word.
    alike = [row["reason"].replace(f"'{row['variant']}'", "''")
             for row in missed.to_dict("records")]
    found = []
    for _, group in missed.groupby(pd.Series(alike, index=missed.index, dtype=str), sort=False):
        parts = [part for part in dict.fromkeys(group["variant"]) if part]
        count = group["process"].nunique()
        times = f" in {count} of {processes} processes" if count < processes else ""
        plural = "s" if len(parts) != 1 else ""
        what = " ".join(filter(None, [f"part{plural}", ", ".join(parts)]))
        found.append(f"{what} of the step not timed{times}: {group['reason'].iloc[0]}")
    return found


def _variants(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the seconds a step by process and window, a column a variant, without warm-up."""
    own = campaign.rows("phases", trial)
    own = own[own["window"] >= 0]
    own = own.assign(step_seconds=own["seconds"] / own["steps"])
    return own.pivot_table(index=["process", "window"], columns="variant", values="step_seconds")


def _estimate(table: pd.DataFrame, variant: str, without: str, processes: Gather) -> Estimate:
    if variant not in table or (without and without not in table):
        return NOT_MEASURED
    if not without:
        return bootstrap.estimate(processes(table[variant]))
    return bootstrap.paired(processes(table[variant] - table[without]))


def _hidden(table: pd.DataFrame, waits: bool, processes: Gather) -> Estimate:
    """Estimate aggregation alone less its exposed part; 0 if it `waits` for the backward pass."""
    if not {"A", "FBA", "FB"} <= set(table):
        return NOT_MEASURED
    if waits:
        return Estimate(0.0, 0.0, 0.0, table.index.get_level_values("process").nunique())
    found = bootstrap.paired(processes(table["A"] - (table["FBA"] - table["FB"])))
    value, low, high = np.maximum(0.0, (found.value, found.low, found.high)).tolist()
    return Estimate(value, low, high, found.processes)


def _by_process(values: "pd.Series[Any]", campaign: Campaign, trial: str) -> list[Times]:
    """Return an array a process, or a node where several repeated the campaign."""
    own = {cast(int, process): each.to_numpy()
           for process, each in values.dropna().groupby("process")}
    return bootstrap.by_node(list(own.values()), campaign.nodes_of(trial, own))
