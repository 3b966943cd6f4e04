"""What counts as a regression: a threshold for each workload, and those that are known already."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.releases import Range

SHOWN, POSSIBLE = "shown", "possible"


@dataclass(frozen=True)
class Acknowledged:
    """A known regression of side B, which counts as none until a day, that day included."""

    framework: str
    releases: Range
    network: str
    reason: str
    until: date

    def covers(self, row: "pd.Series[Any]") -> bool:
        """Return whether a compared row has this regression."""
        return ((row["framework_b"], row["network"]) == (self.framework, self.network)
                and self.releases.holds(str(row["release_b"])))

    @property
    def text(self) -> str:
        return f"{self.reason} (until {self.until})"


@dataclass(frozen=True)
class Rules:
    """The threshold of all workloads, those of single networks, and acknowledged regressions.

    Thresholds are shares. Without one a workload's slow-down is told and fails nothing.
    """

    threshold: float | None = None
    networks: Mapping[str, float] = field(default_factory=dict)
    acknowledged: tuple[Acknowledged, ...] = ()
    today: date = field(default_factory=date.today)

    def threshold_of(self, network: str) -> float:
        """Return a network's threshold, NaN without one."""
        share = self.networks.get(network, self.threshold)
        return float("nan") if share is None else share


def judge(rows: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """Add `threshold`, `regression` (shown, possible or "") and `acknowledged` to compared rows.

    A regression is shown if the whole interval lies beyond the threshold, and possible if a part
    does or there is no interval. `acknowledged` is the reason of a regression that is known. One
    that has expired counts again.
    """
    limits = rows["network"].map(rules.threshold_of).astype(float)
    shown, possible = rows["ratio_low"] > 1 + limits, ~(rows["ratio_high"] <= 1 + limits)
    kind = np.select([limits.isna(), shown, possible], ["", SHOWN, POSSIBLE], "")
    judged = rows.assign(threshold=limits, regression=kind)
    known = [_reason(row, rules) if row["regression"] == SHOWN else ""
             for _, row in judged.iterrows()]
    return judged.assign(acknowledged=pd.Series(known, index=rows.index, dtype=object))


def worst(rows: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Add to each workload the threshold, the worst regression and its reason of its measures.

    `measured` is from `judge`; several of its rows may have the index of one of `rows`.
    """
    found = {index: group for index, group in measured.groupby(level=0)}
    kinds = [next((kind for kind in (SHOWN, POSSIBLE) if kind in set(found[index]["regression"])),
                  "") for index in rows.index]
    # What is acknowledged depends on the workload alone, so all its measures say the same.
    return rows.assign(
        threshold=[found[index]["threshold"].iloc[0] for index in rows.index],
        regression=pd.Series(kinds, rows.index, dtype=object),
        acknowledged=pd.Series([max(found[index]["acknowledged"]) for index in rows.index],
                               rows.index, dtype=object))


def expired(rows: pd.DataFrame, rules: Rules) -> list[Acknowledged]:
    """Return the acknowledged regressions of these rows that have expired."""
    return [each for each in rules.acknowledged if each.until < rules.today
            and any(each.covers(row) for _, row in rows.iterrows())]


def _reason(row: "pd.Series[Any]", rules: Rules) -> str:
    return next((each.text for each in rules.acknowledged
                 if each.until >= rules.today and each.covers(row)), "")
