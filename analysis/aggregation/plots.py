"""The figures of `dlbench study aggregation`.

Bandwidth by size, predicted and measured aggregation, overlap, and predictions for other links.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.aggregation.links import GROUP, Fit
from analysis.aggregation.predictions import FURTHER, TRIAL, WORKLOAD, telling
from analysis.display import palette, style
from analysis.display.numbers import BYTE_UNITS, ENDS, TIME_UNITS, best_unit
from analysis.display.ranking import one_setting
from analysis.display.style import one_two_five, styled

# Inches of a panel, and how many stand side by side.
PANEL, ABREAST = (2.9, 2.4), 3
PREDICTED, SWEPT, MEASURED = (palette.DISTINCT[place][0] for place in (0, 2, 1))
WORDS = {
    "send": "send to one other", "shift": "shift around the ring", "pair": "pairs",
    "fan_in": "all others to one", "fan_out": "one to all others",
    "all_reduce": "library's all-reduce", "to_host": "device to host, all at once",
    "from_host": "host to device, all at once", "host_sum_one": "sum on the host, one thread",
    "host_sum_all": "sum on the host, many threads", "device_sum": "sum on the device",
    "device_copy": "copy on the device", "swap": "all to all others",
    "bit_pack": "packing into bits", "bit_unpack": "restoring from bits",
    "jax_all_reduce": "JAX's own sum", "tensorflow_all_reduce": "TensorFlow's own sum",
    "paddle_all_reduce": "Paddle's own sum",
}


@styled
def bandwidths(swept: pd.DataFrame, fits: Sequence[Fit]) -> Figure:
    """Draw bytes per second by size, a panel per link: points are measured, lines are fitted."""
    names = list(dict.fromkeys(swept["link"]))
    pairs = dict.fromkeys(zip(swept["wire"], swept["devices"], strict=True))
    groups = {group: number for number, group in enumerate(pairs)}
    figure, grid = style.panels(len(names), 0.0, PANEL, ABREAST)
    for axes, name in zip(grid, names, strict=True):
        for key, own in swept[swept["link"] == name].groupby(GROUP, sort=False):
            axes.plot(own["bytes"], own["bytes"] / own["seconds"] / 1e9, linestyle="",
                      **_points(groups[key[0], key[1]]))
        for each in fits:
            if each.link == name:
                sizes = np.geomspace(each.points[0][0], each.largest_bytes, 100)
                seconds = np.array([each.seconds(1, size) for size in sizes])
                axes.plot(sizes, sizes / seconds / 1e9, linewidth=1,
                          color=_points(groups[each.wire, each.devices])["color"])
        axes.set_title(WORDS.get(name, name), fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(2**6))
        axes.xaxis.set_major_formatter(FuncFormatter(_bytes))
        axes.xaxis.set_minor_formatter(NullFormatter())
        one_two_five(axes.yaxis)
        axes.set_ylabel("GB/s, log scales")
        axes.grid()
    handles = [Line2D([], [], **_points(number),
                      label=f"{devices} device{'s' if devices > 1 else ''}, {wire}")
               for (wire, devices), number in groups.items()]
    style.finish(figure, "Each link: measured (points) and T = max(f, a + S / B) (line)", handles)
    return figure


@styled
def predictions(table: pd.DataFrame) -> Figure:
    """Draw each strategy's predicted time, and the measured one if known; a panel per network."""
    known = table[table["predicted_seconds"].notna()]
    measured = "measured_seconds" in known
    shown = ["predicted_seconds", *(["measured_seconds"] if measured else [])]
    unit, scale = best_unit(pd.concat([known[column] for column in shown]), TIME_UNITS)
    networks = list(dict.fromkeys(known["network"]))
    tallest = max(known.groupby("network").size())
    settings = telling(known, TRIAL)
    known = known.assign(label=_rows(known, settings))
    known = known.sort_values(["wire", "devices", "strategy", *settings])
    size = (4.3 + _room(known["label"], 28), 0.9 + 0.26 * tallest)
    figure, grid = style.panels(len(networks), each=size)
    for axes, network in zip(grid, networks, strict=True):
        own = known[known["network"] == network]
        place = np.arange(len(own))
        _intervals(axes, own, "predicted_seconds", scale, place, fmt="s", color=PREDICTED,
                   markersize=4, elinewidth=1.2, capsize=2, label="predicted")
        axes.plot(own["swept_seconds"] / scale, place, linestyle="", marker="x",
                  markersize=6, color=SWEPT,
                  label="predicted by the links' measured points")
        if measured:
            _intervals(axes, own, "measured_seconds", scale, place, fmt="o", color=MEASURED,
                       markersize=6, markerfacecolor="none", elinewidth=1.2, capsize=3,
                       label="measured")
        style.label_rows(axes, own["label"])
        _logarithmic(axes)
        axes.set_xlabel(f"aggregation ({unit}, log scale)")
        axes.set_title(network)
    style.finish(figure, "Aggregation of all gradients by strategy"
                 + (": predicted and measured" if measured else ", predicted"))
    return figure


@styled
def overlap(table: pd.DataFrame) -> Figure:
    """Draw the layer-wise model's step and the measured one, a row per trial of a campaign."""
    unit, scale = best_unit([*table["step_seconds"], *table["measured_step_seconds"]], TIME_UNITS)
    table = table.assign(place=table.groupby(["campaign", "trial"], sort=False).ngroup())
    first = table.drop_duplicates("place")
    rows = zip(first["network"], _rows(first, telling(first, TRIAL)), strict=True)
    labels = [f"{network}, {label}" for network, label in rows]
    figure, axes = style.bars(labels)
    for grouping, marker, sent, face in (("layer", "^", "by layer", "none"),
                                         ("bucket", "s", "by bucket", PREDICTED),
                                         ("whole", "D", "as a whole", "none")):
        own = table[table["grouping"] == grouping]
        axes.plot(own["step_seconds"] / scale, own["place"], linestyle="", marker=marker,
                  markersize=5, color=PREDICTED, markerfacecolor=face,
                  label=f"model, sent {sent}")
    _intervals(axes, first, "measured_step_seconds", scale, first["place"], fmt="o",
               color=MEASURED, markersize=7, markerfacecolor="none", elinewidth=1.4,
               capsize=3, label="measured")
    _logarithmic(axes)
    axes.set_xlabel(f"step ({unit}, log scale)")
    style.finish(figure, "Step by the layer-wise overlap model, and measured")
    return figure


@styled
def what_if(table: pd.DataFrame) -> Figure:
    """Draw the predicted efficiency by devices, a panel per workload, a line per link."""
    names = list(dict.fromkeys(table["link"]))
    workload = [*WORKLOAD, *FURTHER]
    groups = list(table.sort_values("devices", kind="stable")
                  .groupby(workload, sort=False, dropna=False))
    titles = [_workload(group.iloc[0], table) for _, group in groups]
    size = (PANEL[0] + _room(titles, 36), PANEL[1])
    figure, grid = style.panels(len(groups), 0.0, size, ABREAST)
    for axes, title, (_, group) in zip(grid, titles, groups, strict=True):
        for number, name in enumerate(names):
            own = group[group["link"] == name]
            axes.plot(own["devices"], 100 * own["efficiency"], **_points(number),
                      linewidth=1.2, label=name)
        measured = group[group["measured_efficiency"].notna()]
        colours = [_points(names.index(link))["color"] for link in measured["link"]]
        axes.scatter(measured["devices"], 100 * measured["measured_efficiency"], s=60,
                     facecolors="none", edgecolors=colours,
                     label="measured" if colours else None)
        axes.set_title(title, fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(table["devices"].unique()))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(0, 105)
        axes.set_ylabel("efficiency (%)")
        axes.set_xlabel("devices (log scale)")
        axes.grid()
    style.finish(figure, "What if: predicted efficiency of weak scaling on other links")
    return figure


def _points(number: int) -> dict[str, Any]:
    colour, marker = palette.DISTINCT[number % len(palette.DISTINCT)]
    return {"color": colour, "marker": marker, "markersize": 4}


def _intervals(axes: Axes, rows: pd.DataFrame, column: str, scale: float, place: Any,
               **look: Any) -> None:
    """Draw a column's values with their intervals, each at its row's place."""
    value, low, high = (rows[f"{column}{end}"].to_numpy(float) / scale for end in ENDS)
    # Matplotlib asks arrays of one number whether they are finite, which NumPy 2.2 deprecates.
    axes.errorbar(value, place, xerr=[(value - low).tolist(), (high - value).tolist()], **look)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    one_two_five(axes.xaxis)


def _workload(row: "pd.Series[Any]", table: pd.DataFrame) -> str:
    """Name a panel by network, batch, framework, and what else differs between panels."""
    varying = [one_setting(column, row[column])
               for column in ("release", "precision", "tuning", *FURTHER)
               if table[column].nunique() > 1]
    return f"{row['network']}, batch {row['batch']}, {' '.join([row['framework'], *varying])}"


def _rows(table: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """Name each row by strategy, devices and `settings`, and framework and wire where they vary."""
    varying = [column for column in ("framework", "wire")
               if column in table and table[column].nunique() > 1]
    return [", ".join([row["strategy"], f"{row['devices']}x",
                       *(one_setting(column, row[column]) for column in (*varying, *settings))])
            for _, row in table.iterrows()]


def _room(labels: Iterable[str], characters: int) -> float:
    """Return the inches that labels of more than `characters` need beyond the usual width."""
    return 0.065 * max(0, max(map(len, labels)) - characters)


def _bytes(value: float, _: Any) -> str:
    unit, scale = best_unit([value], (*BYTE_UNITS, ("B", 1.0)))
    return f"{value / scale:g} {unit}"
