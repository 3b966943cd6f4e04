"""Puts a gap into sentences that a person can act on.

Every number is one of `analysis.explain.gap.Gap`; only shares and units are computed here.
"""

from collections.abc import Mapping
from typing import Any

from analysis.display.numbers import FLOPS_UNITS, number, percent, span, with_unit
from analysis.explain.gap import LABELS, PRODUCTS, UNNAMED, Gap, Side
from analysis.records import reader
from analysis.traces import kernels
from analysis.trials.breakdown import RESIDUAL

# What a person may try on the side that takes longer.
REMEDIES = {
    kernels.REDUCTION: "a compiler would fuse them with what comes before",
    kernels.ELEMENTWISE: "a compiler would fuse them (tuning: tuned)",
    kernels.LAYOUT: "keep images and weights in the layout that the kernels want (tuning: tuned)",
    kernels.OPTIMISER: "a fused optimiser touches each weight once (tuning: tuned)",
    kernels.COLLECTIVE: "overlap them with the backward pass, or send fewer bytes",
    kernels.COPY: "pin host memory, or copy the next batch while this one trains",
    kernels.IDLE: "launch less, or all at once: a compiled or captured step, or a larger batch",
}
COPIES_OF_CALLS = "pin host memory, or copy the next inputs during this call"
# A tuned step is compiled and captured already.
TUNED_REMEDIES = {
    kernels.COLLECTIVE: REMEDIES[kernels.COLLECTIVE],
    kernels.COPY: REMEDIES[kernels.COPY],
    kernels.IDLE: "a larger batch hides what the host does",
}
# Parts are put into words from this share of the difference on.
LARGE = 0.1
# Products that run at this multiple of the fp32 peak have fewer bits.
FASTER_THAN_FP32 = 1.1


def sentences(gap: Gap) -> list[str]:
    """Say what the parts mean, the largest first, and what could be done."""
    said = [headline(gap)]
    if gap.is_seen:
        large = gap.parts[gap.parts["share"].abs() >= LARGE]
        said += [_part(gap, row)
                 for row in large.sort_values("share", ascending=False).to_dict("records")]
    return [*said, *notes(gap)]


def headline(gap: Gap) -> str:
    """Say which side takes longer, and by how much."""
    slower, faster = _ordered(gap)
    unit, scale = gap.unit
    found = gap.difference
    if not gap.is_seen:
        a, b = (number(side.step_seconds / scale) for side in (gap.a, gap.b))
        return (f"No difference is seen between {gap.a.name} and {gap.b.name}: {a} and {b} {unit} "
                f"a {gap.unit_of_work}. The parts below cancel.")
    ends = sorted(abs(end) / scale for end in (found.low, found.high))
    within = f" ({span(*ends)})" if found.has_interval else ""
    ratio = number(slower.step_seconds / faster.step_seconds)
    longer = f"{number(abs(found.value) / scale)} {unit}{within}"
    return (f"A {gap.unit_of_work} of {slower.name} takes {longer} longer than one of "
            f"{faster.name}: {number(slower.step_seconds / scale)} and "
            f"{number(faster.step_seconds / scale)} {unit}, {ratio} times as long.")


def notes(gap: Gap) -> list[str]:
    """Say how well the parts add up and what the traces did not know."""
    (unit, scale), work = gap.unit, gap.unit_of_work
    whole, residual = gap.difference.value, gap.b.seconds(RESIDUAL) - gap.a.seconds(RESIDUAL)
    # Of a difference that is smaller than the residual a share says nothing.
    share = (f", {percent(abs(residual / whole), '.2g')} of the difference"
             if abs(residual) <= abs(whole) != 0 else "")
    verdict = {True: "within its interval", False: "outside its interval",
               None: "there is no interval"}[gap.adds_up]
    explained = number(gap.explained_seconds / scale)
    said = [f"Without the residual, the parts sum to {explained} {unit} of {number(whole / scale)} "
            f"{unit} ({verdict}). The residual is {number(residual / scale)} {unit}{share}."]
    for side in (gap.a, gap.b):
        own = side.breakdown
        said.append(
            f"{side.name}: a {work} took {number(own.wall_seconds / scale)} {unit} under the trace "
            f"and {number(side.step_seconds / scale)} {unit} when timed. The residual is "
            f"{percent(side.seconds(RESIDUAL) / side.step_seconds, '.2g')} of the timed {work}; "
            f"{percent(own.unclassified, '.2g')} of the busy time is unclassified.")
    if not (gap.a.breakdown.exact and gap.b.breakdown.exact):
        said.append("Traces of older releases do not record overlap: computing is assumed to hide "
                    "copies wherever it could.")
    return said


def _part(gap: Gap, row: Mapping[Any, Any]) -> str:
    kind, share = row["class"], row["share"]
    how = _how_much(gap, share)
    if kind in PRODUCTS:
        return f"{how} is {_arithmetic(gap, kind)}"
    if kind == RESIDUAL:
        over = [side.name for side in (gap.a, gap.b)
                if side.seconds(RESIDUAL) < -LARGE * side.step_seconds]
        if over:
            return (f"{how} is residual: the kernels of {' and '.join(over)} took longer under the "
                    f"trace than the timed {gap.unit_of_work}, in which they may run side by "
                    "side.")
        return f"{how} is residual: kernels took another time under the trace than when timed."
    slower, faster = _ordered(gap)
    longer = slower if share > 0 else faster
    return (f"{how} is {gap.named(row['part'].partition(',')[0])}; {longer.name} has more."
            f"{_remedy(longer, kind)}")


def _remedy(side: Side, kind: str) -> str:
    """Say what a person may try on a side; "" if its tier does it already."""
    trial = side.breakdown.trial
    known = TUNED_REMEDIES if trial["tuning"] == "tuned" else REMEDIES
    if kind not in known or (kind == kernels.COPY and trial["data"] != "host"):
        return ""
    calls = kind == kernels.COPY and reader.infers(trial)
    return f" Remedy: {COPIES_OF_CALLS if calls else known[kind]}."


def _ordered(gap: Gap) -> tuple[Side, Side]:
    """Return the slower side and the faster one."""
    return (gap.b, gap.a) if gap.difference.value >= 0 else (gap.a, gap.b)


def _how_much(gap: Gap, share: float) -> str:
    """Write a share of the gap in percent; a part larger than the gap as a time."""
    way = "" if share > 0 else " the other way"
    if abs(share) <= 1:
        return f"{percent(abs(share), '.0f')} of the gap{way}"
    unit, scale = gap.unit
    seconds = number(abs(share * gap.difference.value) / scale)
    return f"{seconds} {unit}{way}, {number(abs(share))} times the gap,"


def _arithmetic(gap: Gap, kind: str) -> str:
    """Say in which arithmetic either side computes its products, and how fast."""
    trial = gap.a.breakdown.trial
    name = LABELS[trial["device_kind"]][kind]
    (a, ours), (b, theirs) = ((side, _in(side, kind)) for side in (gap.a, gap.b))
    if ours == theirs:
        both = f", {ours} in both" if ours else ""
        return (f"{name}{both}: {a.name} reaches {_rate(a)}, {b.name} {_rate(b)}, by the network's "
                "own count.")
    asked = trial["precision"] != gap.b.breakdown.trial["precision"]
    advice = "" if asked else "; compare them in one arithmetic before anything else"
    return (f"arithmetic: {a.name} computes its {name} in {ours or 'none'}, at {_rate(a)}, and "
            f"{b.name} in {theirs or 'none'}, at {_rate(b)}{advice}.")


def _in(side: Side, kind: str) -> str:
    """Name the arithmetic of a side; if its kernels do not, judge it by their speed."""
    arithmetic = side.arithmetic(kind)
    if arithmetic != UNNAMED:
        return arithmetic.upper()
    if side.breakdown.trial["device_kind"] == "cpu":
        return ""
    if side.fp32_peak and side.product_rate > FASTER_THAN_FP32 * side.fp32_peak:
        times = side.product_rate / side.fp32_peak
        return ("fewer bits than FP32 (its kernels do not say which; they run at "
                f"{times:.1f} times its peak)")
    return "an arithmetic that its kernels do not name"


def _rate(side: Side) -> str:
    return with_unit(side.product_rate, FLOPS_UNITS)
