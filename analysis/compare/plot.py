"""The figures of comparisons: ratios with their intervals, of workloads and of releases."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.compare import calls
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, SLOWER
from analysis.display import style
from analysis.display.style import DASHED, INK

COLOURS = {SLOWER: "#d55e00", FASTER: "#0072b2", NO_DIFFERENCE: "#8c8c8c"}
# The axis reaches at least 2 % to both sides, so that a narrow interval looks narrow.
LEAST_REACH = 0.02


@style.styled
def ratios(rows: pd.DataFrame, labels: list[str], names: tuple[str, str]) -> Figure:
    """Draw the rows of `rules.judge`, each with its label; `names` are those of A and B."""
    compared = rows["ratio_low"].notna()
    table = rows[compared]
    figure, axes = style.bars([label for label, keep in zip(labels, compared, strict=True) if keep])
    for position, (_, row) in enumerate(table.iterrows()):
        _row(axes, position, row)
    axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
    low, high = np.log([table["ratio_low"].min(), table["ratio_high"].max()])
    reach = max(LEAST_REACH, 1.15 * max(-low, high), 1.3 * table["threshold"].fillna(0).max())
    axes.set_xlim(np.exp(-reach), np.exp(reach))
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("time of B over time of A (left: B is faster, right: B is slower)\n"
                    f"A: {names[0]}    B: {names[1]}", loc="left")
    time = "Time per call" if calls.prefixes(rows) else "Time per mini-batch"
    style.finish(figure, f"{time}: ratio of B to A, with its interval")
    return figure


@style.styled
def timeline(rows: pd.DataFrame, releases: Sequence[str], base: str, unit: str) -> Figure:
    """Draw the rows of `track.read`: a panel a workload, and its changes in colours.

    `unit` is what is timed: a mini-batch or a call.
    """
    workloads = list(dict.fromkeys(rows["workload"]))
    figure, panels = style.panels(len(workloads))
    place = {release: number for number, release in enumerate(releases)}
    for axes, workload in zip(panels, workloads, strict=True):
        table = rows[(rows["workload"] == workload) & rows["ratio"].notna()]
        axes.axhline(1, color=INK, linewidth=0.8, zorder=1)
        axes.plot(table["release"].map(place), table["ratio"], color=style.GRID, zorder=1)
        for _, row in table.iterrows():
            _release(axes, place[row["release"]], row)
        missing = rows[(rows["workload"] == workload) & rows["ratio"].isna()]
        axes.plot(missing["release"].map(place), [1.0] * len(missing), linestyle="", marker="x",
                  color=INK, zorder=3)
        axes.set_xlim(-0.5, len(releases) - 0.5)
        axes.set_xticks(range(len(releases)), releases, rotation=45, ha="right",
                        rotation_mode="anchor")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 1 - LEAST_REACH), max(high, 1 + LEAST_REACH))
        axes.set_title(workload)
        axes.set_ylabel("time / base")
    handles = [Line2D([], [], color=COLOURS[word], marker="o", linestyle="", label=label)
               for word, label in ((SLOWER, "slower than the release before"),
                                   (FASTER, "faster"), (NO_DIFFERENCE, "no difference seen"))]
    handles.append(Line2D([], [], color=INK, marker="x", linestyle="", label="not compared"))
    style.finish(figure, f"Time per {unit} over that of {base}", handles)
    return figure


def _release(axes: Axes, place: int, row: "pd.Series[Any]") -> None:
    """Draw a release's ratio and interval; where it changed, in colour and with the change."""
    colour = COLOURS.get(row["verdict"], COLOURS[NO_DIFFERENCE])
    axes.errorbar(place, row["ratio"], yerr=_reach(row), fmt="o", color=colour, elinewidth=1.6,
                  capsize=3, markersize=6, zorder=3)
    if row["verdict"] in (SLOWER, FASTER):
        axes.annotate(f"{100 * (row['change'] - 1):+.2g} %", (place, row["ratio"]), (-6, 6),
                      color=colour, textcoords="offset points", ha="right", fontsize=8,
                      fontweight="bold")


def _row(axes: Axes, position: int, row: "pd.Series[Any]") -> None:
    """Draw a ratio, its interval, its threshold, and its verdict at the right edge."""
    axes.errorbar(row["ratio"], position, xerr=_reach(row), fmt="o", elinewidth=2,
                  color=COLOURS[row["verdict"]], capsize=4, markersize=6, zorder=3)
    if not np.isnan(row["threshold"]):
        axes.plot([1 + row["threshold"]] * 2, [position - 0.5, position + 0.5], linewidth=0.8,
                  color=COLOURS[SLOWER], linestyle=DASHED, zorder=1)
    said = row["verdict"] + ", acknowledged" * bool(row["acknowledged"])
    axes.text(1.01, position, said, transform=axes.get_yaxis_transform(), va="center",
              fontsize=8)


def _reach(row: "pd.Series[Any]") -> list[list[float]] | None:
    """Return how far a ratio's interval reaches to either side; None without an interval."""
    value, low, high = (float(row[column]) for column in ("ratio", "ratio_low", "ratio_high"))
    return None if np.isnan(low) else [[value - low], [high - value]]
