"""The figure of a gap: from A's step to B's, each part a bar that begins where the one before it ended."""

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import TIME_UNITS, best_unit, number
from analysis.display.palette import KERNELS
from analysis.explain.gap import Gap
from analysis.trials.breakdown import RESIDUAL

SMALL = 0.005  # of the longer step: parts below are drawn as one bar
ROW_HEIGHT = 0.36  # inches
TOTAL = "#57606a"


def waterfall(gap: Gap) -> Figure:
    """Draw the step of A, the parts of the difference from the largest down, and the step of B."""
    unit, scale = best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)
    parts = drawn(gap)
    steps = gap.a.step_seconds / scale, gap.b.step_seconds / scale
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(8.6, 1.3 + ROW_HEIGHT * (len(parts) + 2)), layout="constrained")
        axes = figure.subplots()
        axes.barh([0, len(parts) + 1], steps, color=TOTAL, height=0.66)
        at = steps[0]
        axes.plot([at, at], [0.33, 0.67], color=style.INK, linewidth=0.8)
        for place, row in enumerate(parts.to_dict("records"), start=1):
            change = row["difference_seconds"] / scale
            residual = row["class"] == RESIDUAL
            axes.barh(place, change, left=at, color=KERNELS.get(row["class"], style.GRID), height=0.66,
                      edgecolor=style.INK if residual else "none", linewidth=0.8, hatch="///" if residual else None)
            share = f" ({round(100 * row['share'])} %)" if pd.notna(row["share"]) else ""
            axes.annotate(f"{'+' if change > 0 else ''}{number(change)}{share}", (max(at, at + change), place), xytext=(5, 0),
                          textcoords="offset points", va="center", fontsize=8)
            at += change
            axes.plot([at, at], [place + 0.33, place + 0.67], color=style.INK, linewidth=0.8)
        for place, step in zip((0, len(parts) + 1), steps, strict=True):
            axes.annotate(f"{number(step)} {unit}", (step, place), xytext=(5, 0), textcoords="offset points", va="center",
                          fontsize=8, fontweight="bold")
        axes.set_yticks(range(len(parts) + 2), [f"A: {gap.a.name}", *parts["part"], f"B: {gap.b.name}"])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(parts) + 1.6, -0.6)
        axes.set_xlim(0, 1.2 * _reach(steps, parts["difference_seconds"] / scale))
        axes.grid(axis="x")
        axes.set_xlabel(f"time of a mini-batch ({unit})")
        figure.suptitle(f"Where the difference of {number(steps[1] - steps[0])} {unit} lies", x=0.01, ha="left", fontweight="bold")
        return figure


def drawn(gap: Gap) -> pd.DataFrame:
    """Order the parts from the largest down; small ones become one, and the residual comes last."""
    parts = gap.parts.sort_values("difference_seconds", key=abs, ascending=False)
    small = parts["difference_seconds"].abs() < SMALL * max(gap.a.step_seconds, gap.b.step_seconds)
    small &= parts["class"] != RESIDUAL
    rest = parts[small]
    shown = parts[~small & (parts["class"] != RESIDUAL)]
    tail = []
    if len(rest):
        sums = rest[["seconds_a", "seconds_b", "difference_seconds", "share"]].sum(min_count=1)
        tail.append(pd.DataFrame([{"class": "", "part": f"{len(rest)} smaller part{'s' if len(rest) > 1 else ''}", **sums}]))
    return pd.concat([shown, *tail, parts[parts["class"] == RESIDUAL]], ignore_index=True)


def _reach(steps: tuple[float, float], changes: "pd.Series[float]") -> float:
    """The furthest right that any bar gets."""
    return float(max(*steps, (steps[0] + changes.cumsum()).max()))
