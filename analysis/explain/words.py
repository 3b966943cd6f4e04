"""Puts a gap into sentences that a person can act on. Every number is one of `analysis.explain.gap.Gap`; nothing is computed here
but shares and units.
"""

from collections.abc import Mapping
from typing import Any

from analysis.display.numbers import TIME_UNITS, best_unit, number
from analysis.explain.gap import LABELS, UNNAMED, Gap, Side
from analysis.traces.kernels import (
    COLLECTIVE,
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    IDLE,
    LAYOUT,
    OPTIMISER,
    PRODUCT,
    REDUCTION,
)
from analysis.trials.breakdown import RESIDUAL

REMEDIES = {  # of the side that takes longer: what a person may try
    REDUCTION: "a compiler would fuse them with what comes before",
    ELEMENTWISE: "a compiler would fuse them (tuning: tuned)",
    LAYOUT: "keep images and weights in the layout that the kernels want (tuning: tuned)",
    OPTIMISER: "a fused optimiser touches each weight once (tuning: tuned)",
    COLLECTIVE: "overlap them with the backward pass, or send fewer bytes",
    COPY: "pin host memory, or copy the next batch while this one trains",
    IDLE: "launch less, or all at once: a compiled or captured step, or a larger batch",
}
FLOPS_UNITS = (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6))
TOLD = 0.1  # of the difference: parts at least that large are put into words
FASTER_THAN_FP32 = 1.1  # times the fp32 peak: products that run faster have fewer bits


def sentences(gap: Gap) -> list[str]:
    """Say what the parts mean, from the largest down, with what could be done; numbers only from `gap`."""
    said = [headline(gap)]
    if not gap.difference.contains(0.0) and gap.difference.value:
        told = gap.parts[gap.parts["share"].abs() >= TOLD].sort_values("share", ascending=False)
        for row in told.to_dict("records"):
            said.append(_part(gap, row))
    return [*said, *notes(gap)]


def headline(gap: Gap) -> str:
    """Say how much longer which side takes."""
    slower, faster = (gap.b, gap.a) if gap.difference.value >= 0 else (gap.a, gap.b)
    unit, scale = best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)
    ends = sorted(abs(end) / scale for end in (gap.difference.low, gap.difference.high))
    within = f" ({number(ends[0])} to {number(ends[1])})" if gap.difference.has_interval else ""
    if gap.difference.contains(0.0):
        return (f"No difference is seen between {gap.a.name} and {gap.b.name}: {number(gap.a.step_seconds / scale)} and "
                f"{number(gap.b.step_seconds / scale)} {unit} a step. The parts below cancel.")
    return (f"{slower.name} takes {number(abs(gap.difference.value) / scale)} {unit}{within} longer a step than {faster.name}: "
            f"{number(slower.step_seconds / scale)} for {number(faster.step_seconds / scale)} {unit}, "
            f"{number(slower.step_seconds / faster.step_seconds)} times as long.")


def notes(gap: Gap) -> list[str]:
    """Say how well the parts add up and what the traces did not know."""
    unit, scale = best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)
    residual = gap.b.seconds(RESIDUAL) - gap.a.seconds(RESIDUAL)
    share = f", {100 * abs(residual / gap.difference.value):.2g} % of the difference" if gap.difference.value else ""
    verdict = {True: "within its interval", False: "outside its interval", None: "there is no interval"}[gap.adds_up]
    said = [f"The parts without the residual sum to {number(gap.explained_seconds / scale)} {unit} of "
            f"{number(gap.difference.value / scale)} {unit} ({verdict}); the residual is {number(residual / scale)} {unit}{share}."]
    for side in (gap.a, gap.b):
        own, residual = side.breakdown, side.seconds(RESIDUAL) / side.step_seconds
        said.append(f"{side.name}: a step took {number(own.wall_seconds / scale)} {unit} under the trace and "
                    f"{number(side.step_seconds / scale)} {unit} when timed. Of the timed step {100 * residual:.2g} % is residual, "
                    f"of the busy time {100 * own.unclassified:.2g} % unclassified.")
    if not (gap.a.breakdown.exact and gap.b.breakdown.exact):
        said.append("Traces of older releases do not say what hid what: computing is taken to hide copies wherever it could.")
    return said


def _part(gap: Gap, row: Mapping[Any, Any]) -> str:
    kind, share = row["class"], row["share"]
    slower, faster = (gap.b, gap.a) if gap.difference.value >= 0 else (gap.a, gap.b)
    how = _how_much(gap, share)
    if kind in (PRODUCT, CONVOLUTION):
        return f"{how} is {_arithmetic(gap, kind)}"
    if kind == RESIDUAL:
        over = [side.name for side in (gap.a, gap.b) if side.seconds(RESIDUAL) < -TOLD * side.step_seconds]
        if over:
            return (f"{how} is residual: under the trace the kernels of {' and '.join(over)} took longer than its timed step, in "
                    "which they may run side by side.")
        return f"{how} is residual: kernels took another time under the trace than when timed."
    longer = slower if share > 0 else faster
    remedy = f"; {REMEDIES[kind]}" if kind in REMEDIES else ""
    part = row["part"].partition(",")[0].replace("(A ", f"({gap.a.name} ").replace("(B ", f"({gap.b.name} ")
    return f"{how} is {part}, of which {longer.name} has more{remedy}."


def _how_much(gap: Gap, share: float) -> str:
    """A share of the gap in percent; a part larger than the gap, which others cancel, as a time."""
    way = "" if share > 0 else " the other way"
    if abs(share) <= 1:
        return f"{100 * abs(share):.0f} % of the gap{way}"
    unit, scale = best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)
    return f"{number(abs(share * gap.difference.value) / scale)} {unit}{way}, {number(abs(share))} times the gap,"


def _arithmetic(gap: Gap, kind: str) -> str:
    """Say of products which arithmetic either side computes them in, and how fast."""
    name = LABELS[gap.a.breakdown.trial["device_kind"]][kind]
    ours, theirs = (_in(side, kind) for side in (gap.a, gap.b))
    asked = gap.a.breakdown.trial["precision"] != gap.b.breakdown.trial["precision"]
    if ours == theirs:
        both = f", {ours} in both" if ours else ""
        return f"{name}{both}: {gap.a.name} reaches {_rate(gap.a)}, {gap.b.name} {_rate(gap.b)}, by the network's own count."
    return (f"arithmetic: {gap.a.name} computes its {name} in {ours or 'none'}, at {_rate(gap.a)}, and {gap.b.name} in "
            f"{theirs or 'none'}, at {_rate(gap.b)}{'' if asked else '; compare them in one arithmetic before anything else'}.")


def _in(side: Side, kind: str) -> str:
    """The arithmetic of a side in words; unnamed arithmetic is judged by its speed, where fp32 could not be so fast."""
    arithmetic = side.arithmetic(kind)
    if arithmetic != UNNAMED:
        return arithmetic.upper()
    if side.breakdown.trial["device_kind"] == "cpu":
        return ""
    if side.fp32_peak and side.product_rate > FASTER_THAN_FP32 * side.fp32_peak:
        times = side.product_rate / side.fp32_peak
        return f"fewer bits than FP32 (its kernels do not say which, but run at {times:.1f} times its peak)"
    return "an arithmetic that its kernels do not name"


def _rate(side: Side) -> str:
    unit, scale = best_unit([side.product_rate], FLOPS_UNITS)
    return f"{number(side.product_rate / scale)} {unit}"
