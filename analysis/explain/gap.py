"""Why one trial's step takes longer than another's: the difference, split into parts that add up.

`analysis.trials.breakdown` takes both steps apart; a part of the difference is that part of B less
that of A. This module ranks and proves nothing: it explains a row that the precision audit refused
like any other, and names the arithmetic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from analysis.display.numbers import TIME_UNITS, best_unit
from analysis.proof import plausibility
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.traces import kernels
from analysis.trials import breakdown, phases
from analysis.trials.breakdown import PARTS, RESIDUAL, Breakdown

ON_CPU = {
    kernels.PRODUCT: "matrix products", kernels.CONVOLUTION: "convolutions",
    kernels.ATTENTION: "fused attention",
    kernels.REDUCTION: "reductions, norms, pooling, loss", kernels.ELEMENTWISE: "element-wise",
    kernels.LAYOUT: "layout: copies and transposes", kernels.OPTIMISER: "optimiser",
    kernels.COLLECTIVE: "collectives", kernels.COPY: "copies",
    kernels.MEMSET: "memory set", kernels.UNCLASSIFIED: "unclassified",
    kernels.IDLE: "outside operators (Python and waiting)", RESIDUAL: "residual"}
LABELS = {"cpu": ON_CPU, "cuda": ON_CPU | {
    kernels.LAYOUT: "layout: copies and transposes by kernels",
    kernels.COLLECTIVE: "collectives, exposed", kernels.COPY: "copies, exposed",
    kernels.MEMSET: "memory set, exposed", kernels.IDLE: "GPU idle, waiting for the host"}}
PRODUCTS = (kernels.PRODUCT, kernels.CONVOLUTION)
# The arithmetic of a kernel whose name does not tell it.
UNNAMED = "unnamed"


@dataclass(frozen=True)
class Side:
    """One trial of a gap: its name, its step in parts, its machine's fp32 peak, its phases.

    The peak is in FLOP/s, None if not measured. `phases` are those of `analysis.trials.phases`.
    """

    name: str
    breakdown: Breakdown
    fp32_peak: float | None = None
    phases: Mapping[str, bootstrap.Estimate] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        return self.breakdown.step_seconds

    def seconds(self, kind: str) -> float:
        return float(self.breakdown.parts.get(kind, 0.0))

    @cached_property
    def products(self) -> pd.DataFrame:
        rows = self.breakdown.rows
        return rows[rows["class"].isin((*PRODUCTS, kernels.ATTENTION))]

    def arithmetic(self, kind: str) -> str:
        """Return the arithmetic of most of the time of a class of products, or UNNAMED."""
        rows = self.products[self.products["class"] == kind]
        times = rows.groupby(rows["arithmetic"].replace("", UNNAMED))["seconds"].sum()
        return str(times.idxmax()) if times.sum() > 0 else ""

    @property
    def product_rate(self) -> float:
        """FLOP/s of products and convolutions, by the network's own count; nan without any."""
        seconds, trial = self.products["seconds"].sum(), self.breakdown.trial
        return float(trial["flops_per_step"] / trial["devices"] / seconds) if seconds else math.nan


@dataclass(frozen=True)
class Gap:
    """How much longer B's step takes than A's, in seconds, and why.

    parts: class, part, seconds_a, seconds_b, difference_seconds, share; together the difference.
        A share is NaN where no difference is seen.
    details: class, arithmetic, transposition, activity and the three columns of seconds.
    phases: phase, the columns of seconds, low, high; empty unless both sides timed phases.
    """

    a: Side
    b: Side
    difference: bootstrap.Estimate
    parts: pd.DataFrame
    details: pd.DataFrame
    phases: pd.DataFrame

    @property
    def is_seen(self) -> bool:
        """Whether the steps differ by more than chance."""
        return is_seen(self.difference)

    @property
    def explained_seconds(self) -> float:
        """The difference without what the traces could not account for."""
        return float(self.parts.loc[self.parts["class"] != RESIDUAL, "difference_seconds"].sum())

    @property
    def adds_up(self) -> bool | None:
        """Whether the explained parts lie within the difference's interval; None without one."""
        found = self.difference
        return found.contains(self.explained_seconds) if found.has_interval else None

    @property
    def unit(self) -> tuple[str, float]:
        """The unit in which both steps are written, and its seconds."""
        return best_unit([self.a.step_seconds, self.b.step_seconds], TIME_UNITS)

    @property
    def unit_of_work(self) -> str:
        """What is timed: a step of training, or a call of a trained network."""
        return "call" if reader.infers(self.a.breakdown.trial) else "step"

    def named(self, part: str) -> str:
        """Return a part's label with the names of the sides in place of A and B."""
        for letter, side in (("A", self.a), ("B", self.b)):
            part = part.replace(f"({letter} ", f"({side.name} ")
            part = part.replace(f" in {letter}, ", f" in {side.name}, ")
            part = part.replace(f" in {letter})", f" in {side.name})")
        return part


def explain(a: Side, b: Side) -> Gap:
    """Split the difference of two steps into parts."""
    found = bootstrap.difference(b.breakdown.times, a.breakdown.times)
    parts = pd.DataFrame([
        {"class": part, "part": label(part, a, b), "seconds_a": a.seconds(part),
         "seconds_b": b.seconds(part)}
        for part in PARTS if part == RESIDUAL or a.seconds(part) or b.seconds(part)])
    fused = [letter for letter, side in (("A", a), ("B", b)) if not side.seconds(kernels.OPTIMISER)]
    if len(fused) == 1:
        name = f"element-wise and optimiser ({fused[0]} fuses them)"
        parts = _with_optimiser(parts, name)
    parts["difference_seconds"] = parts["seconds_b"] - parts["seconds_a"]
    parts["share"] = parts["difference_seconds"] / (found.value if is_seen(found) else math.nan)
    return Gap(a, b, found, parts, _details(a, b), _phases(a, b))


def is_seen(difference: bootstrap.Estimate) -> bool:
    """Return whether a difference is more than chance."""
    return difference.value != 0 and not difference.contains(0.0)


def label(part: str, a: Side, b: Side) -> str:
    """Name a part; a part of products with its arithmetic on both sides."""
    name = LABELS[a.breakdown.trial["device_kind"]][part]
    if part not in PRODUCTS:
        return name
    ours, theirs = a.arithmetic(part), b.arithmetic(part)
    if not {ours, theirs} - {"", UNNAMED}:
        return name
    if ours == theirs or not ours or not theirs:
        return f"{name} ({ours or theirs})"
    return f"{name} ({ours} in A, {theirs} in B)"


def side_of(name: str, campaign: Campaign, trial: str) -> Side:
    """Make a side of a trial of `campaign`. Raises NotExplained if its step has no breakdown."""
    own = breakdown.of_trial(campaign, trial)
    timed = trial in set(campaign.phases["trial"])
    peaks = campaign.meta.get("peaks") or ()
    # A framework that takes another arithmetic for fp32 takes it in its peak too: ask others first.
    others = [peak for peak in peaks if peak["framework"] != own.trial["framework"]]
    peak = (plausibility.peak_of(own.trial, {"peaks": others}, "fp32")
            or plausibility.peak_of(own.trial, campaign.meta, "fp32"))
    return Side(name, own, peak, phases.of_trial(campaign, trial) if timed else {})


def _with_optimiser(parts: pd.DataFrame, name: str) -> pd.DataFrame:
    """Make one part of element-wise work and the optimiser, which one side's compiler fuses."""
    both = parts["class"].isin((kernels.ELEMENTWISE, kernels.OPTIMISER))
    last = parts["class"] == RESIDUAL
    sums = parts.loc[both, ["seconds_a", "seconds_b"]].sum()
    one = pd.DataFrame([{"class": kernels.ELEMENTWISE, "part": name, **sums}])
    return pd.concat([parts[~both & ~last], one, parts[last]], ignore_index=True)


def _phases(a: Side, b: Side) -> pd.DataFrame:
    """Set the phases that both sides timed beside each other.

    The sides are independent, so the half-widths of a difference are added as squares.
    """
    lines = []
    for name in phases.PARTS:
        ours, theirs = (side.phases.get(name, bootstrap.NOT_MEASURED) for side in (a, b))
        value = theirs.value - ours.value
        below = math.hypot(theirs.value - theirs.low, ours.high - ours.value)
        above = math.hypot(theirs.high - theirs.value, ours.value - ours.low)
        lines.append((name, ours.value, theirs.value, value, value - below, value + above))
    columns = ["phase", "seconds_a", "seconds_b", "difference_seconds", "low", "high"]
    return pd.DataFrame(lines, columns=columns).dropna(subset="difference_seconds")


def _details(a: Side, b: Side) -> pd.DataFrame:
    """Add up the seconds of both sides by arithmetic and transposition, of copies by direction."""
    both = []
    for letter, side in (("a", a), ("b", b)):
        rows = side.breakdown.rows
        activity = rows["kernel"].where(rows["class"].isin((kernels.COPY, kernels.MEMSET)), "")
        keys = ["class", "arithmetic", "transposition", "activity"]
        grouped = rows.assign(activity=activity).groupby(keys)["seconds"].sum()
        both.append(grouped.rename(f"seconds_{letter}"))
    table = pd.concat(both, axis=1).fillna(0.0).reset_index()
    table["difference_seconds"] = table["seconds_b"] - table["seconds_a"]
    table["order"] = table["class"].map({kind: place for place, kind in enumerate(PARTS)})
    ordered = table.sort_values(["order", "difference_seconds"], ascending=[True, False])
    return ordered.drop(columns="order").reset_index(drop=True)
