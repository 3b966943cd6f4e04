"""The figures of `dlbench study aggregation`.

Bandwidth by size, predicted and measured aggregation, overlap, and predictions for other links.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.aggregation.links import GROUP, Fit
from analysis.aggregation.predictions import FURTHER, TRIAL, WORKLOAD, telling
from analysis.display.numbers import TIME_UNITS, best_unit
from analysis.display.style import INK, STYLE, one_two_five

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#8b5a2b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Sizes are in inches. Titles need TITLE_WIDTH where the panels are narrower.
PANEL = (2.9, 2.4)
TITLE_WIDTH = 6.6
ROW_HEIGHT, LEGEND_ENTRY = 0.3, 2.1
ABREAST = 3
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


def bandwidths(swept: pd.DataFrame, fits: Sequence[Fit]) -> Figure:
    """Draw bytes per second by size, a panel per link: points are measured, lines are fitted."""
    names = list(dict.fromkeys(swept["link"]))
    pairs = dict.fromkeys(zip(swept["wire"], swept["devices"], strict=True))
    groups = {group: number for number, group in enumerate(pairs)}
    with mpl.rc_context(STYLE):
        figure, grid = _panels(len(names), PANEL)
        for axes, name in zip(grid, names, strict=False):
            for key, own in swept[swept["link"] == name].groupby(GROUP, sort=False):
                axes.plot(own["bytes"], own["bytes"] / own["seconds"] / 1e9, linestyle="",
                          **_points(groups[key[0], key[1]]))
            for each in fits:
                if each.link == name:
                    sizes = np.geomspace(each.points[0][0], each.largest_bytes, 100)
                    seconds = np.array([each.seconds(1, size) for size in sizes])
                    axes.plot(sizes, sizes / seconds / 1e9, linewidth=1,
                              color=_colour(groups[each.wire, each.devices]))
            axes.set_title(WORDS.get(name, name), fontsize=9)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(LogLocator(2**6))
            axes.xaxis.set_major_formatter(FuncFormatter(_bytes))
            axes.xaxis.set_minor_formatter(NullFormatter())
            one_two_five(axes.yaxis)
            axes.set_ylabel("GB/s, log scales")
            axes.grid()
        _title(figure, "Each link: measured (points) and T = max(f, a + S / B) (line)")
        handles = [Line2D([], [], **_points(number),
                          label=f"{devices} device{'s' if devices > 1 else ''}, {wire}")
                   for (wire, devices), number in groups.items()]
        figure.legend(handles=handles, loc="outside lower left", ncols=4)
        return figure


def predictions(table: pd.DataFrame) -> Figure:
    """Draw each strategy's predicted time, and the measured one if known; a panel per network."""
    known = table[table["predicted_seconds"].notna()]
    measured = "measured_seconds" in known
    shown = ["predicted_seconds", *(["measured_seconds"] if measured else [])]
    unit, scale = _unit(pd.concat([known[column] for column in shown]))
    networks = list(dict.fromkeys(known["network"]))
    tallest = max(known.groupby("network").size())
    settings = telling(known, TRIAL)
    known = known.assign(label=_rows(known, settings))
    known = known.sort_values(["wire", "devices", "strategy", *settings])
    with mpl.rc_context(STYLE):
        size = (4.3 + _room(known["label"], 28), 0.9 + 0.26 * tallest)
        figure, grid = _panels(len(networks), size, 2)
        for axes, network in zip(grid, networks, strict=False):
            own = known[known["network"] == network]
            place = np.arange(len(own))
            _intervals(axes, own, "predicted_seconds", scale, place, fmt="s", color=COLOURS[0],
                       markersize=4, elinewidth=1.2, capsize=2, label="predicted")
            axes.plot(own["swept_seconds"] / scale, place, linestyle="", marker="x",
                      markersize=6, color=COLOURS[2],
                      label="predicted by the links' measured points")
            if measured:
                _intervals(axes, own, "measured_seconds", scale, place, fmt="o", color=COLOURS[1],
                           markersize=6, markerfacecolor="none", elinewidth=1.2, capsize=3,
                           label="measured")
            _name_rows(axes, place, own["label"])
            axes.set_xlabel(f"aggregation ({unit}, log scale)")
            axes.set_title(network)
        _title(figure, "Aggregation of all gradients by strategy"
               + (": predicted and measured" if measured else ", predicted"))
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3)
        return figure


def overlap(table: pd.DataFrame) -> Figure:
    """Draw the layer-wise model's step and the measured one, a row per trial of a campaign."""
    unit, scale = _unit(pd.concat([table["step_seconds"], table["measured_step_seconds"]]))
    table = table.assign(place=table.groupby(["campaign", "trial"], sort=False).ngroup())
    first = table.drop_duplicates("place")
    rows = zip(first["network"], _rows(first, telling(first, TRIAL)), strict=True)
    labels = [f"{network}, {label}" for network, label in rows]
    with mpl.rc_context(STYLE):
        size = (8.6 + _room(labels, 36), 1.6 + ROW_HEIGHT * len(first))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for grouping, marker, sent, face in (("layer", "^", "by layer", "none"),
                                             ("bucket", "s", "by bucket", COLOURS[0]),
                                             ("whole", "D", "as a whole", "none")):
            own = table[table["grouping"] == grouping]
            axes.plot(own["step_seconds"] / scale, own["place"], linestyle="", marker=marker,
                      markersize=5, color=COLOURS[0], markerfacecolor=face,
                      label=f"model, sent {sent}")
        _intervals(axes, first, "measured_step_seconds", scale, first["place"], fmt="o",
                   color=COLOURS[1], markersize=7, markerfacecolor="none", elinewidth=1.4,
                   capsize=3, label="measured")
        _name_rows(axes, first["place"], labels)
        axes.set_xlabel(f"step ({unit}, log scale)")
        _title(figure, "Step by the layer-wise overlap model, and measured")
        figure.legend(loc="outside lower left", ncols=4)
        return figure


def what_if(table: pd.DataFrame) -> Figure:
    """Draw the predicted efficiency by devices, a panel per workload, a line per link."""
    names = list(dict.fromkeys(table["link"]))
    workload = [*WORKLOAD, *FURTHER]
    groups = list(table.sort_values("devices", kind="stable")
                  .groupby(workload, sort=False, dropna=False))
    titles = [_workload(group.iloc[0], table) for _, group in groups]
    with mpl.rc_context(STYLE):
        figure, grid = _panels(len(groups), (PANEL[0] + _room(titles, 36), PANEL[1]))
        for axes, title, (_, group) in zip(grid, titles, groups, strict=False):
            for number, name in enumerate(names):
                own = group[group["link"] == name]
                axes.plot(own["devices"], 100 * own["efficiency"], **_points(number),
                          linewidth=1.2, label=name)
            measured = group[group["measured_efficiency"].notna()]
            colours = [_colour(names.index(link)) for link in measured["link"]]
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
        _title(figure, "What if: predicted efficiency of weak scaling on other links")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left",
                      ncols=max(1, int(figure.get_figwidth() / LEGEND_ENTRY)))
        return figure


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _points(number: int) -> dict[str, Any]:
    return {"color": _colour(number), "marker": MARKERS[number % len(MARKERS)], "markersize": 4}


def _intervals(axes: Axes, rows: pd.DataFrame, column: str, scale: float, place: Any,
               **style: Any) -> None:
    """Draw a column's values with their intervals, each at its row's place."""
    value, low, high = (rows[f"{column}{end}"].to_numpy(float) / scale
                        for end in ("", "_low", "_high"))
    axes.errorbar(value, place, xerr=[value - low, high - value], **style)


def _name_rows(axes: Axes, place: Any, labels: Iterable[str]) -> None:
    """Label the rows from the top down, over a logarithmic axis."""
    axes.set_yticks(place, labels)
    axes.set_ylim(len(place) - 0.4, -0.6)
    axes.set_xscale("log")
    one_two_five(axes.xaxis)
    axes.grid(axis="x")


def _unit(values: "pd.Series[float]") -> tuple[str, float]:
    """The unit of the middle value, or a larger one that gives the largest up to four digits."""
    middle = best_unit(values, TIME_UNITS)
    large = [each for each in TIME_UNITS if each[1] >= middle[1] and values.max() < 1e4 * each[1]]
    return min(large, key=lambda each: each[1], default=TIME_UNITS[0])


def _workload(row: "pd.Series[Any]", table: pd.DataFrame) -> str:
    """Network and batch, the framework, and what else differs between panels."""
    varying = [_words(row, column) for column in ("release", "precision", "tuning", *FURTHER)
               if table[column].nunique() > 1]
    return f"{row['network']}, batch {row['batch']}, {' '.join([row['framework'], *varying])}"


def _panels(count: int, size: tuple[float, float],
            abreast: int = ABREAST) -> tuple[Figure, list[Axes]]:
    across = min(abreast, count)
    down = -(-count // across)
    figure = Figure(figsize=(max(TITLE_WIDTH, size[0] * across), 0.8 + size[1] * down),
                    layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid


def _rows(table: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """Name each row by strategy, devices and `settings`, and framework and wire where they vary."""
    varying = [column for column in ("framework", "wire")
               if column in table and table[column].nunique() > 1]
    return [", ".join([row["strategy"], f"{row['devices']}x",
                       *(_words(row, column) for column in (*varying, *settings))])
            for _, row in table.iterrows()]


def _words(row: "pd.Series[Any]", setting: str) -> str:
    """A setting's value, with the setting's name where the value does not show it."""
    words = {"batch": "batch {}", "global_batch": "{} in all", "data": "data {}",
             "threads": "{} threads", "side": "side {}"}
    text = words.get(setting, "{}").format(row[setting])
    return text.removesuffix("s") if setting == "threads" and row[setting] == 1 else text


def _room(labels: Iterable[str], characters: int) -> float:
    """Inches for labels longer than the `characters` that a figure's usual width has room for."""
    return 0.065 * max(0, max(map(len, labels)) - characters)


def _bytes(value: float, _: Any) -> str:
    for name, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{value / scale:g} {name}"
    return f"{value:g} B"


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", color=INK)
