"""The figures of scaling: throughput with its ideal line, efficiency, the parts of a step."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.display import palette, ranking, style
from analysis.display.numbers import ENDS, TIME_UNITS, best_unit
from analysis.display.style import DASHED, INK, styled
from analysis.report.scaling import PARTS, WORKLOAD

COLOURS = {"forward": "#56b4e9", "backward": "#0072b2", "exposed": "#d55e00", "update": "#8c8c8c"}
# Inches of a figure whose panels are narrower than its title.
TITLE_WIDTH = 5.6
# How far the intervals of two series stand apart, as a share of the axis.
APART = 0.012
# Not quite white: on the page, white is see-through.
HATCHED: dict[str, Any] = {"hatch": "////", "edgecolor": "#fefefe", "linewidth": 0}
# What a panel's title and axis take, in rows.
TITLE_ROWS = 2.5
# Rows of each series of a panel, arguments of `Axes.plot`, and how far it is moved to the side.
Series = list[tuple[pd.DataFrame, dict[str, Any], float]]
@styled
def throughput(scaled: pd.DataFrame) -> Figure:
    """Draw samples a second by devices, a panel a workload; broken lines are n times one device."""
    figure, panels = _by_workload(scaled, "Throughput by devices; broken: n times one device")
    for axes, series in panels:
        for own, line, _ in series:
            devices, rate = own["devices"].astype(float), own["samples_per_second"]
            axes.plot(devices, devices * rate.iloc[0], color=line["color"], linewidth=0.8,
                      linestyle=DASHED)
            axes.plot(devices, rate, linewidth=1.4, **line)
        axes.set_ylabel("samples a second")
        axes.set_ylim(bottom=0)
        style.in_plain_numbers(axes.yaxis)
    return figure


@styled
def efficiency(scaled: pd.DataFrame) -> Figure:
    """Draw efficiency by devices with its intervals, a panel a workload.

    Series stand side by side, so that no interval hides another.
    """
    known = scaled.loc[scaled["devices"] > 1, "efficiency_low"].notna().any()
    title = "Efficiency by devices" + (", with 95 % intervals" if known else "")
    if (scaled["efficiency"] > 1).any():
        title += "; above 100 %: faster than that many single devices"
    figure, panels = _by_workload(scaled, title)
    for axes, series in panels:
        for own, line, aside in series:
            value, low, high = 100 * own[[f"efficiency{end}" for end in ENDS]].to_numpy(float).T
            axes.errorbar(own["devices"].astype(float) + aside, value,
                          yerr=np.nan_to_num([value - low, high - value]), linewidth=1.4,
                          elinewidth=1.2, capsize=3, **line)
        axes.axhline(100, color=INK, linewidth=0.8, zorder=1)
        axes.set_ylabel("efficiency (%)")
        axes.set_ylim(0, max(110.0, axes.get_ylim()[1]))
    return figure


@styled
def phases(parts: pd.DataFrame) -> Figure:
    """Draw the parts of each step stacked, a panel a network and batch; `parts`: `phases.table`.

    Aggregation that the backward pass hides is hatched, unless its interval includes 0. A mark
    shows the whole step, to which medians of differences add up only roughly. Negative parts, and
    rows without any measured part, are left out.
    """
    measured = parts[parts[list(PARTS)].notna().any(axis=1)]
    names = ranking.contestants(measured)
    groups = [group for _, group in measured.groupby(["network", "batch"], sort=False)]
    heights = [TITLE_ROWS + len(group) for group in groups]
    figure = Figure(figsize=(style.WIDTH, 0.9 + 0.32 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(groups), squeeze=False, height_ratios=heights).ravel()
    for axes, group in zip(grid, groups, strict=True):
        _steps(axes, group, names[group.index])
        axes.set_title(_panel(group, measured))
    handles, _ = grid[0].get_legend_handles_labels()
    handles.append(Patch(facecolor=COLOURS["backward"], label="aggregation, hidden behind it",
                         **HATCHED))
    title = ("What a step is made of; parts below 0, and hatching whose interval includes 0, "
             "are left out")
    style.finish(figure, title, handles, columns=3)
    return figure


def _panel(group: pd.DataFrame, measured: pd.DataFrame) -> str:
    """Name a panel by network, batch, and what only its rows have in common."""
    varying = [column for column in ranking.GROUP if group[column].nunique(dropna=False) > 1]
    first = group.iloc[0]
    others = ranking.setting(first, measured, ["batch", *varying]).removeprefix(first["network"])
    return f"{first['network']}, batch {first['batch']}{others}"


def _steps(axes: Axes, group: pd.DataFrame, names: "pd.Series[str]") -> None:
    """Draw the stacked parts of one panel's rows."""
    unit, scale = best_unit(group["step"], TIME_UNITS)
    widths = {name: np.clip(group[name].fillna(0.0).to_numpy(float) / scale, 0.0, None)
              for name in (*PARTS, "hidden")}
    settings = [ranking.setting(row, group, ["batch"]).removeprefix(str(row["network"]))
                for _, row in group.iterrows()]
    style.label_rows(axes, [name + each for name, each in zip(names, settings, strict=True)])
    left = np.zeros(len(group))
    for name, words in PARTS.items():
        axes.barh(range(len(group)), widths[name], left=left, height=0.72, color=COLOURS[name],
                  label=words)
        left = left + widths[name]
        if name == "backward":
            sure = group["hidden_low"] != 0
            hidden = np.where(sure, np.minimum(widths["hidden"], widths[name]), 0.0)
            axes.barh(range(len(group)), hidden, left=left - hidden, height=0.72, fill=False,
                      **HATCHED)
    step = group["step"].to_numpy(float) / scale
    axes.plot(step, range(len(group)), linestyle="", marker="|", markersize=15, color=INK,
              markeredgewidth=2, label="whole step, measured")
    axes.set_xlim(0, 1.04 * np.nanmax([*left, *step]) or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_xlabel(f"time of a step ({unit})")


def _by_workload(scaled: pd.DataFrame, title: str) -> tuple[Figure, list[tuple[Axes, Series]]]:
    """Open a panel for each workload; return with it what to draw in it."""
    styles = palette.series_styles(scaled["contestant"], scaled)
    apart = APART * float(scaled["devices"].max() - scaled["devices"].min())
    aside = {name: apart * (place - (len(styles) - 1) / 2) for place, name in enumerate(styles)}
    groups = [group for _, group in scaled.groupby(WORKLOAD, sort=False, dropna=False)]
    figure, grid = style.panels(len(groups), TITLE_WIDTH)
    panels = []
    for axes, group in zip(grid, groups, strict=True):
        panels.append((axes, [
            (own.sort_values("devices"), style.line(styles[str(name)]), aside[str(name)])
            for name, own in group.groupby("contestant", sort=False)]))
        axes.set_title(_workload(group.iloc[0], scaled))
        axes.set_xticks(sorted(scaled["devices"].astype(int).unique()))
        axes.set_xlabel("devices")
        axes.grid()
    style.finish(figure, title, style.legend(styles))
    return figure, panels


def _workload(row: "pd.Series[Any]", scaled: pd.DataFrame) -> str:
    """Name a workload by its network, its batch, and what else varies."""
    parts = [row["network"],
             f"batch {row['batch']} {'each' if row['scaling'] == 'weak' else 'in all'}"]
    for column in WORKLOAD[2:-1]:
        if scaled[column].nunique() > 1:
            parts.append(f"{row[column]}{' threads' if column == 'threads' else ''}")
    return ", ".join(parts)
