"""The figures of scaling: throughput with its ideal line, efficiency, and the parts of a step stacked."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.display import palette, ranking
from analysis.display.numbers import TIME_UNITS, best_unit
from analysis.display.style import INK, STYLE, in_plain_numbers, line
from analysis.report.scaling import PARTS, WORKLOAD

PHASE_COLOURS = {"forward": "#56b4e9", "backward": "#0072b2", "exposed": "#d55e00", "update": "#8c8c8c"}
PANEL = (4.3, 2.9)  # inches
TITLE_WIDTH = 5.6  # of a figure whose panels are narrower than its title
ROW_HEIGHT = 0.32  # inches
APART = 0.012  # of the axis: how far one series' intervals stand beside the next one's
HATCHED: dict[str, Any] = {"hatch": "////", "edgecolor": "#fefefe", "linewidth": 0}  # not white: within a page that is see-through
TITLE_ROWS = 2.5  # what a panel's title and axis take, in rows


def throughput(scaled: pd.DataFrame) -> Figure:
    """Draw samples a second over devices, a panel a workload; broken lines are n times what one device does."""
    def draw(axes: Axes, own: pd.DataFrame, look: dict[str, Any], aside: float) -> None:
        devices = own["devices"].astype(float)
        axes.plot(devices, devices * own["samples_per_second"].iloc[0], color=look["color"], linewidth=0.8, linestyle=(0, (4, 3)))
        axes.plot(devices, own["samples_per_second"], linewidth=1.4, **look)

    figure, grid = _by_workload(scaled, draw, "Throughput by devices; broken: n times one device")
    for axes in grid:
        axes.set_ylabel("samples a second")
        axes.set_ylim(bottom=0)
        in_plain_numbers(axes.yaxis)
    return figure


def efficiency(scaled: pd.DataFrame) -> Figure:
    """Draw efficiency over devices with 95 % intervals where there are any, a panel a workload: 100 % is n times one device.

    Series stand beside one another, so that no interval hides another.
    """
    def draw(axes: Axes, own: pd.DataFrame, look: dict[str, Any], aside: float) -> None:
        value, low, high = (100 * own[f"efficiency{end}"].to_numpy(float) for end in ("", "_low", "_high"))
        error = np.nan_to_num([value - low, high - value])
        axes.errorbar(own["devices"].astype(float) + aside, value, yerr=error, linewidth=1.4, elinewidth=1.2, capsize=3, **look)

    known = scaled.loc[scaled["devices"] > 1, "efficiency_low"].notna().any()
    figure, grid = _by_workload(scaled, draw, "Efficiency by devices" + (", with 95 % intervals" if known else ""))
    for axes in grid:
        axes.axhline(100, color=INK, linewidth=0.8, zorder=1)
        axes.set_ylabel("efficiency (%)")
        axes.set_ylim(0, max(110.0, axes.get_ylim()[1]))
    return figure


def phases(parts: pd.DataFrame) -> Figure:
    """Draw the parts of each step stacked, a panel a network and batch; aggregation that the backward pass hides is hatched.

    What is hidden is not drawn where its interval includes 0. A mark shows the whole step, to which medians of differences add up
    only roughly; negative ones are not drawn.
    `parts`: `phases.table`. Rows none of whose parts were measured are left to the table.
    """
    measured = parts[parts[list(PARTS)].notna().any(axis=1)]
    names = ranking.contestants(measured)
    groups = [group for _, group in measured.groupby(["network", "batch"], sort=False)]
    with mpl.rc_context(STYLE):
        heights = [TITLE_ROWS + len(group) for group in groups]
        figure = Figure(figsize=(PANEL[0] * 2, 0.9 + ROW_HEIGHT * sum(heights)), layout="constrained")
        grid = figure.subplots(len(groups), squeeze=False, height_ratios=heights).ravel()
        for axes, group in zip(grid, groups, strict=True):
            unit = _stack(axes, group, names[group.index])
            axes.set_xlabel(f"time of a step ({unit})")
            axes.set_title(_panel(group, measured))
        figure.suptitle("What a step is made of; parts below 0, and hatching whose interval includes 0, are left out",
                        x=0.01, ha="left", fontweight="bold")
        handles, _ = grid[0].get_legend_handles_labels()
        hatched = Patch(facecolor=PHASE_COLOURS["backward"], label="aggregation, hidden behind it", **HATCHED)
        figure.legend(handles=[*handles, hatched], loc="outside lower left", ncols=3)
        return figure


def _panel(group: pd.DataFrame, measured: pd.DataFrame) -> str:
    """A panel's title: network, batch, and what is the same in this panel and not in all."""
    varying = [column for column in ranking.GROUP if group[column].nunique(dropna=False) > 1]
    network = str(group["network"].iloc[0])
    others = ranking.setting(group.iloc[0], measured, dropped=["batch", *varying]).removeprefix(network)
    return f"{network}, batch {group['batch'].iloc[0]}{others}"


def _stack(axes: Axes, group: pd.DataFrame, names: "pd.Series[str]") -> str:
    """Draw the stacked parts of one panel's rows; return the unit of its axis."""
    unit, scale = best_unit(group["step"], TIME_UNITS)
    places, left = np.arange(len(group)), np.zeros(len(group))
    widths = {name: np.clip(group[name].fillna(0.0).to_numpy(float) / scale, 0.0, None) for name in (*PARTS, "hidden")}
    for name, words in PARTS.items():
        axes.barh(places, widths[name], left=left, height=0.72, color=PHASE_COLOURS[name], label=words)
        left = left + widths[name]
        if name == "backward":  # only there can aggregation hide
            hidden = np.where(group["hidden_low"] == 0, 0.0, np.minimum(widths["hidden"], widths[name]))
            axes.barh(places, hidden, left=left - hidden, height=0.72, fill=False, **HATCHED)
    step = group["step"].to_numpy(float) / scale
    axes.plot(step, places, linestyle="", marker="|", markersize=15, markeredgewidth=2, color=INK, label="whole step, measured")
    settings = [ranking.setting(row, group, dropped=["batch"]).removeprefix(str(row["network"])) for _, row in group.iterrows()]
    axes.set_yticks(places, [name + setting for name, setting in zip(names, settings, strict=True)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(group) - 0.4, -0.6)
    axes.set_xlim(0, 1.04 * np.nanmax([*left, *step]) or 1.0)
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    return unit


def _by_workload(scaled: pd.DataFrame, draw: Any, title: str) -> tuple[Figure, list[Axes]]:
    styles = {series: line(look) for series, look in palette.series_styles(scaled["contestant"], scaled).items()}
    apart = APART * float(scaled["devices"].max() - scaled["devices"].min())
    aside = {series: apart * (number - (len(styles) - 1) / 2) for number, series in enumerate(styles)}
    groups = [group for _, group in scaled.groupby(WORKLOAD, sort=False, dropna=False)]
    across = min(2, len(groups))
    down = -(-len(groups) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(TITLE_WIDTH, PANEL[0] * across), 0.8 + PANEL[1] * down), layout="constrained")
        grid = list(figure.subplots(down, across, squeeze=False).ravel())
        for axes in grid[len(groups):]:
            axes.set_axis_off()
        for axes, group in zip(grid, groups, strict=False):
            for series, own in group.groupby("contestant", sort=False):
                draw(axes, own.sort_values("devices"), styles[str(series)], aside[str(series)])
            axes.set_title(_name(group.iloc[0], scaled))
            axes.set_xticks(sorted(scaled["devices"].astype(int).unique()))
            axes.set_xlabel("devices")
            axes.grid()
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        handles = [Line2D([], [], label=series, **look) for series, look in styles.items()]
        figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)))
        return figure, grid[:len(groups)]


def _name(row: "pd.Series[Any]", scaled: pd.DataFrame) -> str:
    """A workload's name: network, batch, and what else varies."""
    varying = [column for column in WORKLOAD[2:] if column != "scaling" and scaled[column].nunique() > 1]
    batch = f"batch {row['batch']} {'each' if row['scaling'] == 'weak' else 'in all'}"
    return ", ".join([row["network"], batch, *(f"{row[column]}{' threads' if column == 'threads' else ''}" for column in varying)])
