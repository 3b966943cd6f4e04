"""What a step is made of: forward, backward, exposed aggregation and update, from the nested variants in phases.csv.

Variants of one process were timed in turn, window by window, so a part is the median of paired differences. Aggregation is hidden
as far as it takes longer alone than it makes the step longer; none of what waits for the backward pass's end is.
"""

import math
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Estimate, Times

PARTS = {  # name: the variant that has it, and the one that has all but it
    "forward": ("F", ""), "backward": ("FB", "F"), "exposed": ("FBA", "FB"), "update": ("FBAU", "FBA"),
}
ALONE = {**PARTS, "exposed": ("", ""), "update": ("FBAU", "FB")}  # one device aggregates nothing: its FBA is FB once more
WHOLE = {"step": "FBAU", "isolated": "A"}  # isolated: the aggregation alone, of buffers of the gradients' shapes
HIDDEN = "hidden"
AFTER_BACKWARD = ("ring", "tree", "gather", "host_one", "host_all", "one_bit")  # aggregate once all gradients are there
NAMES = (*PARTS, *WHOLE, HIDDEN)
NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def of_trial(campaign: Campaign, trial: str) -> dict[str, Estimate]:
    """Estimate each of `NAMES` in seconds a step; one whose variants were not timed is nan, as is aggregation on one device."""
    settings = next(each for each in campaign.trials if each["trial"] == trial)
    devices, waits = settings["devices"], settings["strategy"] in AFTER_BACKWARD
    own = campaign.phases[(campaign.phases["trial"] == trial) & (campaign.phases["window"] >= 0)]
    own = own.assign(step_seconds=own["seconds"] / own["steps"])
    table = own.pivot_table(index=["process", "window"], columns="variant", values="step_seconds")
    found = {name: _estimate(table, *variants) for name, variants in (PARTS if devices > 1 else ALONE).items()}
    found |= {name: _estimate(table, variant, "") for name, variant in WHOLE.items()}
    return {**found, HIDDEN: _hidden(table, waits) if devices > 1 else NOTHING}


def table(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Add `NAMES` with their `_low` and `_high`, in seconds a step, to those of `rows` (of trials.csv) that have phases."""
    timed = rows[rows["trial"].isin(campaign.phases["trial"])]
    parts = [{f"{name}{suffix}": value for name, found in of_trial(campaign, trial).items()
              for suffix, value in (("", found.value), ("_low", found.low), ("_high", found.high))} for trial in timed["trial"]]
    columns = [f"{name}{suffix}" for name in NAMES for suffix in ("", "_low", "_high")]
    return pd.concat([timed.reset_index(drop=True), pd.DataFrame(parts, columns=columns, dtype=float)], axis=1)


def remarks(own: pd.DataFrame, processes: int) -> list[str]:
    """Say which parts of a step could not be timed, and why, once a reason; `own` is the rows of phases.csv of one trial.

    Where fewer than all `processes` missed it, their number is said.
    """
    missed = own[own["reason"] != ""]
    alike = [row["reason"].replace(f"'{row['variant']}'", "''") for row in missed.to_dict("records")]  # refusals name their part
    found = []
    for _, group in missed.groupby(pd.Series(alike, index=missed.index, dtype=str), sort=False):
        parts, count = [part for part in dict.fromkeys(group["variant"]) if part], group["process"].nunique()
        times = f" in {count} of {processes} processes" if count < processes else ""
        what = f"part{'s' if len(parts) > 1 else ''} {', '.join(parts)}" if parts else "parts"
        found.append(f"{what} of the step not timed{times}: {group['reason'].iloc[0]}")
    return found


def _estimate(table: pd.DataFrame, variant: str, without: str) -> Estimate:
    if variant not in table or (without and without not in table):
        return NOTHING
    if not without:
        return bootstrap.estimate(_by_process(table[variant]))
    return bootstrap.paired(_by_process(table[variant] - table[without]))


def _hidden(table: pd.DataFrame, waits: bool) -> Estimate:
    """Aggregation alone less what of it is exposed, at least 0; nothing is hidden of what `waits` for the backward pass."""
    if not {"A", "FBA", "FB"} <= set(table):
        return NOTHING
    if waits:
        return Estimate(0.0, 0.0, 0.0, table.index.get_level_values("process").nunique())
    found = bootstrap.paired(_by_process(table["A"] - (table["FBA"] - table["FB"])))
    low, high = (max(0.0, end) if found.has_interval else math.nan for end in (found.low, found.high))
    return Estimate(max(0.0, found.value), low, high, found.processes)


def _by_process(values: "pd.Series[Any]") -> list[Times]:
    return [own.to_numpy() for _, own in values.dropna().groupby("process")]
