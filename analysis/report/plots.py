"""The main figures of a report: times, relative speeds, memory, traffic, energy, losses.

Each is a function of DataFrames that returns a Figure. A framework's second release or tuning has
an open marker and a broken line.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.display import memory, palette, ranking, style
from analysis.display.numbers import BYTE_UNITS, JOULE_UNITS, TIME_UNITS, Units, best_unit
from analysis.display.palette import SeriesStyle
from analysis.display.ranking import FASTEST, GROUP, UNDECIDED
from analysis.display.style import INK, LINES, styled

DROPOUT = "(dropout)"
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
STEEP = 4.0
# Column: title, name of the axis, units.
MEASURES: dict[str, tuple[str, str, Units]] = {
    "step_seconds": ("Time per {work}, with 95 % intervals (lower is faster)", "time",
                     TIME_UNITS),
    "latency_p50_seconds": ("Median latency of a call, with 95 % intervals", "latency", TIME_UNITS),
    "latency_p99_seconds": ("99th percentile of a call's latency, with 95 % intervals", "latency",
                            TIME_UNITS),
    "pcie_rx_bytes_per_step": ("Bytes received over PCIe per {work}", "bytes", BYTE_UNITS),
    "energy_joules_per_step": ("Energy per {work} (lower is better)", "energy", JOULE_UNITS),
}


@styled
def by_batch(trials: pd.DataFrame, measure: str) -> Figure:
    """Draw one of `MEASURES` by batch and framework, a panel a network.

    A panel with one batch has bars, others have lines. Times are those of verified rows.
    """
    title, name, units = MEASURES[measure]
    timed = f"{measure}_low" in trials
    kept = trials[trials["verified"] == "yes"] if timed else trials[trials["status"] == "ok"]
    kept = kept[kept[measure].notna()]
    columns = [measure, f"{measure}_low", f"{measure}_high"] if timed else [measure]
    title = title.format(work=ranking.unit_of_work(trials))
    return _by_batch(kept.assign(axis=name), columns, title, units)


@styled
def peak_memory(trials: pd.DataFrame) -> Figure:
    """Draw the memory that compares by batch and framework; name rows that have none."""
    rows = trials[trials["status"] == "ok"]
    rows = rows.assign(memory_bytes=memory.compared(rows), axis=memory.names(rows))
    title, untold = memory.title(rows), rows[memory.untold(rows)]
    if len(untold):
        frameworks = " and ".join(dict.fromkeys(untold["framework"]))
        title += f"; not drawn: {len(untold)} of {frameworks}, {memory.UNTOLD}"
    return _by_batch(rows[rows["memory_bytes"].notna()], ["memory_bytes"], title, BYTE_UNITS)


def _by_batch(rows: pd.DataFrame, columns: list[str], title: str, units: Units) -> Figure:
    """Draw the first of `columns` by batch, the others as its interval; `axis` names it."""
    unit, scale = best_unit(rows[columns[0]], units)
    table, styles = _series(rows)
    figure, panels = _panels(table, ["batch", "tuning"])
    for axes, panel in panels:
        batches = sorted(panel["batch"].unique())
        present = [series for series in styles if series in set(panel["series"])]
        one = len(batches) == 1
        width = 0.8 / max(len(present), 3) if one else min(0.12, 0.6 / len(present))
        for position, series in enumerate(present):
            own = panel[panel["series"] == series].sort_values("batch")
            aside = width * (position - (len(present) - 1) / 2)
            places = np.array([batches.index(batch) for batch in own["batch"]]) + aside
            values = own[columns].to_numpy(float).T / scale  # (value, low, high) x batches
            _draw(axes, places, values, styles[series], width if one else 0.0)
        axes.set_xticks(range(len(batches)), [f"{batch:,}" for batch in batches])
        axes.set_xlim(-0.6, len(batches) - 0.4)
        axes.set_xlabel("batch per device")
        axes.set_ylabel(f"{panel['axis'].iloc[0]} ({unit})")
        axes.grid(axis="y")
        _scale(axes, panel[columns] / scale, steep=not one)
    bars = all(panel["batch"].nunique() == 1 for _, panel in panels)
    style.finish(figure, title, style.bar_legend(styles) if bars else style.legend(styles))
    return figure


@styled
def relative_speed(speeds: pd.DataFrame) -> Figure:
    """Draw each verified row's speed relative to the fastest of its group.

    `speeds` is what `ranking.relative` returns.
    """
    table, styles = _series(speeds)
    groups = [group for _, group in table.groupby(GROUP, sort=False, dropna=False)
              if len(group) > 1]
    labels: list[str] = []
    rows = []
    for group in groups:
        # The label stands at the middle row of a group; an empty row follows the last one.
        first, middle = len(labels), (len(group) - 1) // 2
        rows += [(first + place, trial) for place, (_, trial) in enumerate(group.iterrows())]
        labels += [""] * (len(group) + 1)
        labels[first + middle] = ranking.setting(group.iloc[0], speeds)
    figure, axes = style.bars(labels[:-1], 0.3)
    for row, trial in rows:
        _speed(axes, row, trial, styles[trial["series"]])
    axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
    axes.set_xlim(0, max(1.35, 1.25 * np.nanmax([1.0, *table["relative_speed_high"]])))
    axes.set_xlabel("speed relative to the fastest of the group, with 95 % intervals")
    style.finish(figure, "Relative speed of verified rows", style.legend(styles))
    return figure


@styled
def losses(trials: pd.DataFrame, windows: pd.DataFrame,
           dropout: Collection[str] = ()) -> Figure:
    """Draw the loss of each trial's first process at its network's first batch, a panel a network.

    A point is the loss at the end of a window, so only points of one step coincide, and not those
    of networks with `dropout`.
    """
    measured = trials[trials["status"] == "ok"]
    first = measured.groupby("network")["batch"].transform("first")
    table, styles = _series(measured[measured["batch"] == first])
    figure, panels = _panels(table, ["tuning", "threads"])
    for axes, panel in panels:
        for position, (_, trial) in enumerate(panel.iterrows()):
            own = windows[windows["trial"] == trial["trial"]]
            curve = own[own["process"] == own["process"].min()]
            # A wide line shows on both sides of a narrow one that lies on it.
            width = max(1.0, 4.5 - 2 * position)
            axes.plot(curve["last_step"], curve["loss"], color=styles[trial["series"]].colour,
                      linewidth=width, zorder=2 + position,
                      linestyle=LINES[position % len(LINES)], marker=".", markersize=width + 5)
            if trial["verified"] != "yes":
                # Losses fall, so the upper right corner is empty.
                corner = (0.97, 0.97 - 0.09 * len(axes.texts))
                axes.annotate(f"{trial['series']}: not verified", corner, ha="right", va="top",
                              xycoords="axes fraction", fontsize=8)
        axes.set_xscale("log")
        style.one_two_five(axes.xaxis)
        # The markers of the highest losses need room.
        axes.set_ylim(0, 1.06 * axes.dataLim.y1)
        axes.set_xlabel("steps trained (log scale)")
        if panel["network"].iloc[0] in dropout:
            axes.set_title(f"{axes.get_title(loc='left')} {DROPOUT}")
        axes.set_ylabel("training loss")
        axes.grid()
    unmarked = {series: replace(own, marker="") for series, own in styles.items()}
    title = ("Training loss at the end of each window: equal at first where frameworks train the "
             "same network; rounding grows")
    if set(table["network"]) & set(dropout):
        title += "; dropout draws masks of its own in each framework, so those curves part"
    style.finish(figure, title, style.legend(unmarked))
    return figure


def _scale(axes: Axes, values: pd.DataFrame, steep: bool) -> None:
    """Choose a logarithmic axis where `steep` values allow it, else one that begins at 0."""
    largest = float(np.nanmax(values.to_numpy(float)))
    smallest = float(values.iloc[:, 0].min())
    if steep and largest > STEEP * smallest:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()}, log scale")
        axes.set_ylim(smallest / 1.4, 1.4 * largest)
        style.one_two_five(axes.yaxis)
    else:
        axes.set_ylim(0, 1.1 * largest)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        style.in_plain_numbers(axes.yaxis)


def _draw(axes: Axes, places: Any, values: Any, own: SeriesStyle, width: float) -> None:
    """Draw values as bars of a width, or as a line without, with the intervals that are known."""
    if width:
        axes.bar(places, values[0], 0.9 * width, **style.bar(own))
    else:
        axes.plot(places, values[0], linewidth=1.3, **style.line(own))
    if len(values) == 3:
        # A cap without an interval would look like certainty.
        known = np.isfinite(values).all(axis=0)
        value, ends = values[0, known], values[1:, known]
        axes.errorbar(places[known], value, yerr=np.abs(ends - value), fmt="none", capsize=3,
                      ecolor=INK if width else own.colour, elinewidth=1.4)


def _speed(axes: Axes, row: int, trial: "pd.Series[Any]", own: SeriesStyle) -> None:
    """Draw a marker, its interval, and the verdict where nothing was decided."""
    value, low, high = trial[ranking.SPEEDS]
    if trial["verdict"] != FASTEST and not pd.isna(low):
        axes.errorbar(value, row, xerr=[[value - low], [high - value]], fmt="none",
                      ecolor=own.colour, elinewidth=1.6, capsize=3)
    axes.plot(value, row, **{**style.line(own), "linestyle": ""})
    if trial["verdict"] in UNDECIDED:
        right = max(1.0, value if pd.isna(high) else high)
        # The reason of "not compared" has no room here; the table states it.
        axes.annotate(trial["verdict"].partition(":")[0], (right, row), xytext=(8, 0),
                      va="center", fontsize=8, textcoords="offset points")


def _series(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, SeriesStyle]]:
    """Add the column `series`, the contestant and, of several, its tuning; choose their styles."""
    names = ranking.series(table)
    return table.assign(series=names), palette.series_styles(names, table)


def _panels(
        table: pd.DataFrame, dropped: list[str]) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Open a panel for rows that differ in nothing but their contestant and what is `dropped`."""
    key = [column for column in GROUP if column not in dropped]
    groups = [group for _, group in table.groupby(key, sort=False, dropna=False)]
    figure, grid = style.panels(len(groups))
    for axes, panel in zip(grid, groups, strict=True):
        axes.set_title(ranking.setting(panel.iloc[0], table, dropped))
    return figure, list(zip(grid, groups, strict=True))
