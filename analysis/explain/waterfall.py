"""The figure of a gap: from A's step to B's, each part a bar that begins where the last one ended.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import number, percent, signed
from analysis.display.palette import KERNELS
from analysis.explain.gap import Gap
from analysis.trials.breakdown import RESIDUAL

# Smaller parts, as a share of the longer step, are drawn as one bar.
SMALL = 0.005
TOTAL = "#57606a"


@style.styled
def waterfall(gap: Gap) -> Figure:
    """Draw the step of A, the parts of the difference from the largest down, and the step of B."""
    unit, scale = gap.unit
    parts = drawn(gap)
    first, last = gap.a.step_seconds / scale, gap.b.step_seconds / scale
    labels = [f"A: {gap.a.name}", *parts["part"], f"B: {gap.b.name}"]
    figure, axes = style.bars(labels)
    axes.barh([0, len(parts) + 1], [first, last], color=TOTAL, height=0.66)
    ends = first + np.cumsum([0.0, *parts["difference_seconds"] / scale])
    for place, row in enumerate(parts.to_dict("records"), start=1):
        start, end = ends[place - 1:place + 1]
        residual = row["class"] == RESIDUAL
        axes.barh(place, end - start, left=start, color=KERNELS.get(row["class"], style.GRID),
                  height=0.66, edgecolor=style.INK if residual else "none", linewidth=0.8,
                  hatch="///" if residual else None)
        share = f" ({percent(row['share'], '.0f')})" if pd.notna(row["share"]) else ""
        axes.annotate(signed(end - start) + share, (max(start, end), place), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=8)
    for place, end in enumerate(ends):
        axes.plot([end, end], [place + 0.33, place + 0.67], color=style.INK, linewidth=0.8)
    for place, step in ((0, first), (len(parts) + 1, last)):
        axes.annotate(f"{number(step)} {unit}", (step, place), xytext=(5, 0), va="center",
                      textcoords="offset points", fontsize=8, fontweight="bold")
    axes.set_xlim(0, 1.2 * max(last, *ends))
    work = "mini-batch" if gap.unit_of_work == "step" else gap.unit_of_work
    axes.set_xlabel(f"time of a {work} ({unit})")
    style.finish(figure, f"Where the difference of {number(last - first)} {unit} comes from"
                 if gap.is_seen else "No difference is seen: the parts cancel")
    return figure


def drawn(gap: Gap) -> pd.DataFrame:
    """Order the parts from the largest down; small ones become one, and the residual is last."""
    parts = gap.parts.sort_values("difference_seconds", key=abs, ascending=False)
    last = parts["class"] == RESIDUAL
    least = SMALL * max(gap.a.step_seconds, gap.b.step_seconds)
    small = ~last & (parts["difference_seconds"].abs() < least)
    rest = parts[small]
    one = pd.DataFrame()
    if len(rest):
        columns = ["seconds_a", "seconds_b", "difference_seconds", "share"]
        name = f"{len(rest)} smaller part{'s' if len(rest) > 1 else ''}"
        one = pd.DataFrame([{"class": "", "part": name, **rest[columns].sum(min_count=1)}])
    return pd.concat([parts[~small & ~last], one, parts[last]], ignore_index=True)
