"""The figure of a comparison: a ratio with its interval for each workload, and the line at 1 that it must clear."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, SLOWER
from analysis.display.style import GRID, INK, STYLE

COLOURS = {SLOWER: "#d55e00", FASTER: "#0072b2", NO_DIFFERENCE: "#8c8c8c"}
ROW_HEIGHT = 0.42  # inches
LEAST_REACH = 0.02  # the axis reaches at least 2 % to both sides, so that an interval of no width looks like one


def ratios(rows: pd.DataFrame, labels: list[str], names: tuple[str, str], threshold: float | None = None) -> Figure:
    """Draw the compared rows of `compare.compare`, each under its label; `names` are those of A and B."""
    compared = rows["ratio_low"].notna()
    table, labels = rows[compared], [label for label, keep in zip(labels, compared, strict=True) if keep]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 1.4 + ROW_HEIGHT * len(table)), layout="constrained")
        axes = figure.subplots()
        for position, (_, row) in enumerate(table.iterrows()):
            _row(axes, position, row)
        axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
        if threshold is not None:
            axes.axvline(1 + threshold, color=COLOURS[SLOWER], linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.set_yticks(range(len(table)), labels)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(table) - 0.4, -0.6)
        low, high = np.log([table["ratio_low"].min(), table["ratio_high"].max()])
        reach = max(LEAST_REACH, 1.15 * max(-low, high), 1.3 * (threshold or 0))
        axes.set_xlim(np.exp(-reach), np.exp(reach))
        axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(axis="x", color=GRID)
        axes.set_xlabel(f"time of B over time of A (left: B is faster, right: B is slower)\nA: {names[0]}    B: {names[1]}",
                        loc="left")
        figure.suptitle("Time per mini-batch of B, as a multiple of A's", x=0.01, ha="left", fontweight="bold")
        return figure


def _row(axes: Axes, position: int, row: "pd.Series[Any]") -> None:
    """Draw one workload: its interval as a bar, its ratio as a point, its verdict at the right edge."""
    value, low, high = (float(row[column]) for column in ("ratio", "ratio_low", "ratio_high"))
    colour = COLOURS[row["verdict"]]
    axes.errorbar(value, position, xerr=[[value - low], [high - value]], fmt="o", color=colour, ecolor=colour, elinewidth=2,
                  capsize=4, markersize=6, zorder=3)
    axes.text(1.01, position, row["verdict"], transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=INK)
