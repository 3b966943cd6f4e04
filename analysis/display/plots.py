"""Figures from tables, each a function of DataFrames that returns a Figure; nothing is written here.

How a series looks is decided in `analysis.display.palette`; whoever shares a colour and marker with another, as a release or tuning beyond
the first, has an open marker and a broken line. Figures are white cards: `INK` and `GRID` are single colours so that a page can
replace them in the SVG by its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from analysis.display import palette, tables
from analysis.display.palette import Look
from analysis.display.tables import (
    BYTE_UNITS,
    FASTEST,
    GROUP,
    JOULE_UNITS,
    NO_DIFFERENCE,
    TIME_UNITS,
    TOO_FEW,
)

INK = "#24292f"
GRID = "#d0d7de"
LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
PANEL = (4.3, 2.9)  # inches
PANELS_ABREAST = 2
ROW_HEIGHT = 0.3  # inches of a row of the relative speeds
DECADE = 1.5  # inches of a logarithmic axis along the page: in fewer, labels at 5,000, 10,000 and 20,000 meet
STEEP = 4.0  # times from the smallest to the largest value, from which a logarithmic axis is easier to read

STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "figure.titlesize": 11, "svg.fonttype": "none",
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": GRID, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "figure.facecolor": "white", "axes.facecolor": "none", "savefig.facecolor": "white", "svg.hashsalt": "dlbench",
}


def step_time(trials: pd.DataFrame) -> Figure:
    """Draw the time per mini-batch with its 95 % interval by batch and framework, a panel a network; verified rows only."""
    ranked = trials[trials["verified"] == "yes"]
    unit, scale = tables.best_unit(ranked["step_seconds"], TIME_UNITS)
    title = "Time per mini-batch, with 95 % intervals (lower is faster)"
    return _by_batch(ranked, ["step_seconds", "step_seconds_low", "step_seconds_high"], scale, (title, f"time ({unit})"))


def peak_memory(trials: pd.DataFrame) -> Figure:
    """Draw the peak memory of a training process by batch and framework, a panel a network; measured rows only."""
    known = trials[(trials["status"] == "ok") & trials["peak_memory_bytes"].notna()]
    unit, scale = tables.best_unit(known["peak_memory_bytes"], BYTE_UNITS)
    return _by_batch(known, ["peak_memory_bytes"], scale, ("Peak memory while training", f"memory ({unit})"))


def pcie_received(trials: pd.DataFrame) -> Figure:
    """Draw the bytes that a mini-batch brings to the devices over PCIe by batch and framework, a panel a network."""
    return _counted(trials, "pcie_rx_bytes_per_step", BYTE_UNITS, ("Received over PCIe for a mini-batch", "bytes"))


def energy(trials: pd.DataFrame) -> Figure:
    """Draw the energy that a mini-batch costs by batch and framework, a panel a network."""
    return _counted(trials, "energy_joules_per_step", JOULE_UNITS, ("Energy of a mini-batch (lower is better)", "energy"))


def relative_speed(speeds: pd.DataFrame) -> Figure:
    """Draw each verified row's speed relative to the fastest of its group; `speeds` is what `tables.relative` returns."""
    table = _labelled(speeds)
    styles = palette.looks(table["series"], table)
    groups = [group for _, group in table.groupby(GROUP, sort=False, dropna=False) if len(group) > 1]
    height = 1.5 + ROW_HEIGHT * sum(len(group) + 1 for group in groups)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] * PANELS_ABREAST, height), layout="constrained")
        axes = figure.subplots()
        row = 0
        ticks = {}
        for group in groups:
            ticks[row + (len(group) - 1) / 2] = tables.setting(group.iloc[0], speeds)
            for _, trial in group.iterrows():
                _speed(axes, row, trial, styles[trial["series"]])
                row += 1
            row += 1
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(row - 1.2, -0.8)
        axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
        axes.set_xlim(0, max(1.35, 1.25 * np.nanmax([1.0, *table["relative_speed_high"]])))
        axes.grid(axis="x")
        axes.set_xlabel("speed relative to the fastest of its group, which is 1, with 95 % intervals")
        _finish(figure, "Relative speed of verified rows", styles)
        return figure


def losses(trials: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    """Draw the loss over the steps of each trial's first process, a panel a network (its first batch): right ones coincide."""
    measured = trials[trials["status"] == "ok"]
    table = _labelled(measured[measured["batch"] == measured.groupby("network")["batch"].transform("first")])
    styles = palette.looks(table["series"], table)
    with mpl.rc_context(STYLE):
        figure, panels = _panels(table, dropped=("tuning", "threads"))
        for axes, panel in panels:
            for position, (_, trial) in enumerate(panel.iterrows()):
                own = windows[windows["trial"] == trial["trial"]]
                curve = own[own["process"] == own["process"].min()]
                width = max(1.0, 4.5 - 2 * position)  # a wide line shows on both sides of a narrow one that lies on it
                axes.plot(curve["last_step"], curve["loss"], color=styles[trial["series"]].colour, linewidth=width,
                          linestyle=LINES[position % len(LINES)], zorder=2 + position)
                if trial["verified"] != "yes":
                    axes.annotate(f"{trial['series']}: not verified", (0.03, 0.03 + 0.09 * len(axes.texts)),
                                  xycoords="axes fraction", fontsize=8)  # losses start high: this corner is empty
            axes.set_xscale("log")
            one_two_five(axes.xaxis)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("steps trained")
            axes.set_ylabel("training loss")
            axes.grid()
        unmarked = {series: replace(style, marker="") for series, style in styles.items()}
        _finish(figure, "Loss while timed: frameworks that train one network give one curve", unmarked)
        return figure


def _counted(trials: pd.DataFrame, column: str, units: tuple[tuple[str, float], ...], words: tuple[str, str]) -> Figure:
    known = trials[trials[column].notna()]
    unit, scale = tables.best_unit(known[column], units)
    return _by_batch(known, [column], scale, (words[0], f"{words[1]} ({unit})"))


def _by_batch(trials: pd.DataFrame, columns: list[str], scale: float, words: tuple[str, str]) -> Figure:
    """Draw `columns` (a value, and its low and high where it has an interval): bars where a panel has one batch, else lines."""
    table = _labelled(trials)
    styles = palette.looks(table["series"], table)
    with mpl.rc_context(STYLE):
        figure, panels = _panels(table, dropped=("batch", "tuning"))
        for axes, panel in panels:
            batches = sorted(panel["batch"].unique())
            present = [series for series in styles if series in set(panel["series"])]
            width = 0.8 / max(len(present), 3) if len(batches) == 1 else min(0.12, 0.6 / len(present))
            for position, series in enumerate(present):
                own = panel[panel["series"] == series].sort_values("batch")
                x = np.array([batches.index(batch) for batch in own["batch"]]) + width * (position - (len(present) - 1) / 2)
                values = own[columns].to_numpy(float).T / scale  # (value, low, high) x batches
                _bars(axes, x, values, styles[series], width) if len(batches) == 1 else _line(axes, x, values, styles[series])
            axes.set_xticks(range(len(batches)), [f"{batch:,}" for batch in batches])
            axes.set_xlim(-0.6, len(batches) - 0.4)
            axes.set_xlabel("batch per device")
            axes.set_ylabel(words[1])
            axes.grid(axis="y")
            _scale(axes, panel[columns] / scale, steep=len(batches) > 1)
        _finish(figure, words[0], styles)
        return figure


def _scale(axes: Axes, values: pd.DataFrame, steep: bool) -> None:
    largest, smallest = float(np.nanmax(values.to_numpy(float))), float(values.iloc[:, 0].min())
    if steep and largest > STEEP * smallest:
        axes.set_yscale("log")
        axes.set_ylim(smallest / 1.4, 1.4 * largest)
        one_two_five(axes.yaxis)
    else:
        axes.set_ylim(0, 1.1 * largest)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        in_plain_numbers(axes.yaxis)


def one_two_five(axis: Axis) -> None:
    """Label a logarithmic axis that has its data at 1, 2, 5, 10, 20 ... in plain numbers; where these would meet, at 1, 10, 100."""
    low, high = axis.get_view_interval()
    inches = axis.axes.get_window_extent().width / axis.axes.figure.dpi
    crowded = isinstance(axis, XAxis) and inches < DECADE * math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1,) if crowded else (1, 2, 5)))
    in_plain_numbers(axis)
    axis.set_minor_formatter(NullFormatter())


def in_plain_numbers(axis: Axis) -> None:
    """Label an axis as in 0.5 and 1,000,000."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _bars(axes: Axes, x: Any, values: Any, style: Look, width: float) -> None:
    solid = style.number == 0
    axes.bar(x, values[0], 0.9 * width, color=style.colour if solid else "none", edgecolor=style.colour, linewidth=1.2,
             hatch=None if solid else "///")
    _interval(axes, x, values, INK)


def _line(axes: Axes, x: Any, values: Any, style: Look) -> None:
    axes.plot(x, values[0], linewidth=1.3, **drawn(style))
    _interval(axes, x, values, style.colour)


def _interval(axes: Axes, x: Any, values: Any, colour: str) -> None:
    if len(values) == 3:
        known = np.isfinite(values).all(axis=0)  # a cap without an interval would look like certainty
        error = np.abs(values[1:, known] - values[0, known])
        axes.errorbar(np.asarray(x)[known], values[0, known], yerr=error, fmt="none", ecolor=colour, elinewidth=1.4, capsize=3)


def _speed(axes: Axes, row: int, trial: "pd.Series[Any]", style: Look) -> None:
    """Draw one row of the relative speeds: its interval, its marker, and its verdict where nothing was decided."""
    value, low, high = trial["relative_speed"], trial["relative_speed_low"], trial["relative_speed_high"]
    if trial["verdict"] != FASTEST and not pd.isna(low):
        error = [[value - low], [high - value]]
        axes.errorbar(value, row, xerr=error, fmt="none", ecolor=style.colour, elinewidth=1.6, capsize=3)
    axes.plot(value, row, **{**drawn(style), "linestyle": ""})
    if trial["verdict"] in (NO_DIFFERENCE, TOO_FEW):
        right = max(1.0, value if pd.isna(high) else high)
        axes.annotate(trial["verdict"], (right, row), xytext=(8, 0), textcoords="offset points", va="center", fontsize=8)


def _labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Add the column `series`: the framework, with its release or tuning where the table holds several."""
    names = table["contestant"] if "contestant" in table else tables.contestants(table)
    return table.assign(series=names + " " + table["tuning"] if table["tuning"].nunique() > 1 else names)


def drawn(look: Look) -> dict[str, Any]:
    """Turn a look into what `Axes.plot` takes: open markers and broken lines from the second series of a look on."""
    return {"color": look.colour, "marker": look.marker, "markersize": 6, "markeredgewidth": 1.4,
            "markerfacecolor": "none" if look.number else look.colour, "linestyle": LINES[look.number % len(LINES)]}


def _panels(table: pd.DataFrame, dropped: Sequence[str]) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Open a figure with a panel for each group of rows that differ in nothing but what is `dropped` and their framework."""
    groups = list(table.groupby([column for column in GROUP if column not in dropped], sort=False, dropna=False))
    across = min(PANELS_ABREAST, max(1, len(groups)))
    down = max(1, -(-len(groups) // across))
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)
    figure = Figure(figsize=(PANEL[0] * across, 0.7 + PANEL[1] * down), layout=layout)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(groups):]:
        axes.set_axis_off()
    for axes, (_, panel) in zip(grid, groups, strict=False):
        axes.set_title(tables.setting(panel.iloc[0], table, dropped))
    return figure, [(axes, panel) for axes, (_, panel) in zip(grid, groups, strict=False)]


def _finish(figure: Figure, title: str, styles: Mapping[str, Look]) -> None:
    """Set the title and, below all panels, the legend."""
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    handles = [Line2D([], [], label=series, **drawn(style)) for series, style in styles.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)), handlelength=2.6)
