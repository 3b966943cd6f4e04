"""Why one trial's step takes longer than another's: the measured difference, split into parts that add up to it.

Both steps are taken apart by `analysis.trials.breakdown`, so each part is that part of B less that of A. Nothing is said here of rank or
proof: a row that the precision audit refused is explained like any other, and the answer names the arithmetic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.proof import plausibility
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.traces.kernels import (
    COLLECTIVE,
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    IDLE,
    LAYOUT,
    MEMSET,
    OPTIMISER,
    PRODUCT,
    REDUCTION,
    UNCLASSIFIED,
)
from analysis.trials import breakdown, phases
from analysis.trials.breakdown import PARTS, RESIDUAL, Breakdown

LABELS = {
    "cuda": {PRODUCT: "matrix products", CONVOLUTION: "convolutions", REDUCTION: "reductions, norms, pooling, loss",
             ELEMENTWISE: "element-wise", LAYOUT: "layout: copies and transposes by kernels", OPTIMISER: "optimiser",
             COLLECTIVE: "collectives, exposed", COPY: "copies, exposed", MEMSET: "memory set, exposed",
             UNCLASSIFIED: "unclassified", IDLE: "GPU idle, waiting for the host", RESIDUAL: "residual"},
    "cpu": {PRODUCT: "matrix products", CONVOLUTION: "convolutions", REDUCTION: "reductions, norms, pooling, loss",
            ELEMENTWISE: "element-wise", LAYOUT: "layout: copies and transposes", OPTIMISER: "optimiser", COLLECTIVE: "collectives",
            COPY: "copies", MEMSET: "memory set", UNCLASSIFIED: "unclassified", IDLE: "outside operators (Python and waiting)",
            RESIDUAL: "residual"},
}
UNNAMED = "unnamed"  # arithmetic that no kernel's name tells


@dataclass(frozen=True)
class Side:
    """One trial of a gap: its name, its step in parts, the fp32 peak of its machine (FLOP/s; None if not measured), its phases."""

    name: str
    breakdown: Breakdown
    fp32_peak: float | None = None
    phases: Mapping[str, bootstrap.Estimate] = field(default_factory=dict)  # of `analysis.trials.phases`, where they were timed

    @property
    def step_seconds(self) -> float:
        return self.breakdown.step_seconds

    def seconds(self, kind: str) -> float:
        return float(self.breakdown.parts.get(kind, 0.0))

    @cached_property
    def products(self) -> pd.DataFrame:
        return self.breakdown.rows[self.breakdown.rows["class"].isin((PRODUCT, CONVOLUTION))]

    def arithmetic(self, kind: str) -> str:
        """The arithmetic of most of the time in a class of products; UNNAMED where the names do not say."""
        rows = self.products[self.products["class"] == kind]
        times = rows.groupby(rows["arithmetic"].replace("", UNNAMED))["seconds"].sum()
        return str(times.idxmax()) if times.sum() > 0 else ""

    @property
    def product_rate(self) -> float:
        """FLOP/s of products and convolutions together, by the network's own count; nan where there are none."""
        seconds = self.products["seconds"].sum()
        return float(self.breakdown.trial["flops_per_step"] / self.breakdown.trial["devices"] / seconds) if seconds else math.nan


@dataclass(frozen=True)
class Gap:
    """How much longer B's step takes than A's, and why. `parts` has a row a part, together exactly the difference."""

    a: Side
    b: Side
    difference: bootstrap.Estimate  # seconds a step, B less A
    parts: pd.DataFrame  # class, part, seconds_a, seconds_b, difference_seconds, share
    details: pd.DataFrame  # class, arithmetic, transposition, activity, seconds_a, seconds_b, difference_seconds
    phases: pd.DataFrame  # phase, seconds_a, seconds_b, difference_seconds, low, high; empty unless both sides timed phases

    @property
    def explained_seconds(self) -> float:
        """The difference without what the traces could not account for."""
        return float(self.parts.loc[self.parts["class"] != RESIDUAL, "difference_seconds"].sum())

    @property
    def adds_up(self) -> bool | None:
        """Whether the explained parts lie within the difference's interval; None where there is no interval."""
        return self.difference.contains(self.explained_seconds) if self.difference.has_interval else None


def explain(a: Side, b: Side) -> Gap:
    """Split the difference of two steps into parts."""
    found = bootstrap.difference(b.breakdown.times, a.breakdown.times)
    present = [part for part in PARTS if part == RESIDUAL or a.seconds(part) or b.seconds(part)]
    parts = pd.DataFrame([{"class": part, "part": label(part, a, b), "seconds_a": a.seconds(part), "seconds_b": b.seconds(part)}
                          for part in present])
    fused = _fused(a, b)
    if fused:
        parts = _with_optimiser(parts, f"element-wise and optimiser ({fused} fuses them)")
    parts["difference_seconds"] = parts["seconds_b"] - parts["seconds_a"]
    parts["share"] = parts["difference_seconds"] / found.value if found.value else math.nan
    return Gap(a, b, found, parts, _details(a, b), _phases(a, b))


def label(part: str, a: Side, b: Side) -> str:
    """Name a part; one of products with its arithmetic on both sides."""
    name = LABELS[a.breakdown.trial["device_kind"]][part]
    if part not in (PRODUCT, CONVOLUTION):
        return name
    ours, theirs = a.arithmetic(part), b.arithmetic(part)
    if not {ours, theirs} - {"", UNNAMED}:
        return name
    if ours == theirs or not ours or not theirs:
        return f"{name} ({ours or theirs})"
    return f"{name} ({ours} in A, {theirs} in B)"


def side_of(name: str, campaign: Campaign, trial: str) -> Side:
    """Make a side of a trial of `campaign`. Raises NotExplained where its step cannot be taken apart."""
    own = breakdown.of_trial(campaign, trial)
    timed = phases.of_trial(campaign, trial) if trial in set(campaign.phases["trial"]) else {}
    return Side(name, own, _fp32_peak(own.trial, campaign.meta), timed)


def _fused(a: Side, b: Side) -> str:
    """The side, A or B, whose compiler hides the optimiser in element-wise kernels while the other side's stands by itself."""
    has = {letter: side.seconds(OPTIMISER) > 0 for letter, side in (("A", a), ("B", b))}
    return next((letter for letter in has if not has[letter]), "") if any(has.values()) else ""


def _with_optimiser(parts: pd.DataFrame, name: str) -> pd.DataFrame:
    """Make one part of element-wise work and the optimiser: two parts would set each against nothing."""
    both = parts["class"].isin((ELEMENTWISE, OPTIMISER))
    one = pd.DataFrame([{"class": ELEMENTWISE, "part": name, **parts.loc[both, ["seconds_a", "seconds_b"]].sum()}])
    return pd.concat([parts[~both & (parts["class"] != RESIDUAL)], one, parts[parts["class"] == RESIDUAL]], ignore_index=True)


def _fp32_peak(trial: Mapping[str, Any], meta: Mapping[str, Any]) -> float | None:
    """The fp32 peak that other frameworks reached, where any was asked: one that takes another arithmetic takes it there too."""
    others = [peak for peak in meta.get("peaks") or () if peak["framework"] != trial["framework"]]
    return plausibility.peak_of(trial, {"peaks": others}, "fp32") or plausibility.peak_of(trial, meta, "fp32")


def _phases(a: Side, b: Side) -> pd.DataFrame:
    """Set forward, backward, exposed aggregation and update beside each other, as variants of the step timed them.

    The sides are independent, so the half-widths of a difference are those of both sides, added as squares.
    """
    rows = []
    for name in phases.PARTS:
        ours, theirs = (side.phases.get(name, phases.NOTHING) for side in (a, b))
        value = theirs.value - ours.value
        below, above = math.hypot(theirs.value - theirs.low, ours.high - ours.value), math.hypot(
            theirs.high - theirs.value, ours.value - ours.low)
        if math.isfinite(value):
            rows.append({"phase": name, "seconds_a": ours.value, "seconds_b": theirs.value, "difference_seconds": value,
                         "low": value - below, "high": value + above})
    return pd.DataFrame(rows, columns=["phase", "seconds_a", "seconds_b", "difference_seconds", "low", "high"])


def _details(a: Side, b: Side) -> pd.DataFrame:
    """Seconds of both sides by class, arithmetic and transposition, and of copies by direction."""
    keys = ["class", "arithmetic", "transposition", "activity"]
    both = []
    for letter, side in (("a", a), ("b", b)):
        rows = side.breakdown.rows
        activity = rows["kernel"].where(rows["class"].isin((COPY, MEMSET)), "")
        grouped = rows.assign(activity=activity).groupby(keys)["seconds"].sum()
        both.append(grouped.rename(f"seconds_{letter}"))
    table = pd.concat(both, axis=1).fillna(0.0).reset_index()
    table["difference_seconds"] = table["seconds_b"] - table["seconds_a"]
    order = table["class"].map({kind: place for place, kind in enumerate(PARTS)})
    return table.assign(order=order).sort_values(["order", "difference_seconds"], ascending=[True, False]).drop(columns="order"
                        ).reset_index(drop=True)
