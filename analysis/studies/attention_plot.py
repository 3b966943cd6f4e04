"""Draws the attention study: maps of implementations over settings, and a roofline."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.display import palette, style
from analysis.display.numbers import FLOPS_UNITS, best_unit, number
from analysis.studies.report import PASSES

MASKS = {"no": "no mask", "yes": "causal mask"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
# Above this share of the scale, a cell is dark. A page replaces `style.INK` and white, but not
# these.
DARK, ON_DARK, ON_LIGHT = 0.55, "#fefefe", "#000000"


@style.styled
def maps(rows: pd.DataFrame, column: str, heading: str) -> Figure:
    """Draw a panel a pass and mask: implementations down, values of `column` across.

    A cell has its speed; its colour is the share of the precision's peak, or of the largest speed.
    """
    names = list(dict.fromkeys(rows["name"]))
    values = list(dict.fromkeys(rows[column]))
    panels = [(kind, mask) for kind in PASSES for mask in MASKS
              if ((rows["pass"] == kind) & (rows["causal"] == mask)).any()]
    unit, scale = best_unit(rows["speed"], FLOPS_UNITS)
    has_peak = bool(rows["share"].notna().any())
    colours = rows["share"] if has_peak else rows["speed"] / rows["speed"].max()
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    size = (style.WIDTH, 1.3 + down * (0.55 + 0.3 * len(names)))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    most = max(0.01, float(colours.max()))
    for axes, (kind, mask) in zip(grid, panels, strict=False):
        mine = (rows["pass"] == kind) & (rows["causal"] == mask)
        cells = rows.assign(colour=colours, value=rows[column])[mine]
        image = _cells(axes, cells, (names, values), scale, most)
        axes.set_title(f"{PASSES[kind]}, {MASKS[mask]}" if rows["causal"].nunique() > 1
                       else PASSES[kind])
    for axes in grid[len(panels):]:
        axes.set_axis_off()
    figure.supxlabel(heading, fontsize=9)
    bar = figure.colorbar(image, ax=list(grid), shrink=0.8, format=lambda share, _: f"{share:.0%}")
    bar.set_label("share of a product's peak" if has_peak else "share of the largest speed")
    bar.outline.set_visible(False)
    style.finish(figure, f"Speed of attention ({unit}) by {heading}")
    return figure


def _cells(axes: Axes, cells: pd.DataFrame, labels: tuple[list[Any], list[Any]], scale: float,
           most: float) -> Any:
    names, values = labels
    shade = np.full((len(names), len(values)), np.nan)
    for cell in cells.to_dict("records"):
        row, place = names.index(cell["name"]), values.index(cell["value"])
        able = cell["status"] == "ok"
        shade[row, place] = cell["colour"] if able else np.nan
        text = number(cell["speed"] / scale) if able else "\N{EN DASH}"
        if cell["status"] in ("failed", "different"):
            text = cell["status"]
        colour = style.INK
        if able:
            colour = ON_DARK if cell["colour"] > DARK * most else ON_LIGHT
        axes.annotate(text, (place, row), ha="center", va="center", fontsize=8, color=colour)
    image = axes.imshow(np.ma.masked_invalid(shade), aspect="auto", cmap="YlGnBu", vmin=0,
                        vmax=most)
    axes.set_xticks(range(len(values)), [f"{value:,}" if isinstance(value, int) else str(value)
                                         for value in values])
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


@style.styled
def roofline(able: pd.DataFrame, base: Mapping[str, Any], peaks: Mapping[str, float]) -> Figure:
    """Draw speed against operations per byte under the roof of the base's precision."""
    rows = able[able["precision"] == base["precision"]]
    unit, scale = best_unit(rows["speed"], FLOPS_UNITS)
    peak, memory = peaks[base["precision"]], peaks["memory"]
    kinds = [kind for kind in PASSES if (rows["pass"] == kind).any()]
    names = list(dict.fromkeys(rows["name"]))
    figure, panels = style.panels(len(kinds))
    ridge = peak / memory
    edges = np.geomspace(min(rows["intensity"].min(), ridge) / 2,
                         max(rows["intensity"].max(), ridge) * 2, 100)
    for axes, kind in zip(panels, kinds, strict=True):
        axes.plot(edges, np.minimum(peak, memory * edges) / scale, color=style.INK, linewidth=1)
        for (bench, name, mask), group in rows[rows["pass"] == kind].groupby(
                ["bench", "name", "causal"], sort=False):
            colour = palette.FRAMEWORKS.get(str(bench), palette.OTHER)[0]
            axes.plot(group["intensity"], group["speed"] / scale, linestyle="none", color=colour,
                      marker=MARKERS[names.index(name) % len(MARKERS)], markersize=6,
                      markerfacecolor="none" if mask == "yes" else colour)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(rows["speed"].min() / scale / 1.5, peak / scale * 1.5)
        style.one_two_five(axes.yaxis)
        style.in_plain_numbers(axes.xaxis)
        axes.set_title(PASSES[kind])
        axes.set_xlabel("operations per byte (log scale)")
        axes.set_ylabel(f"{unit} (log scale)")
        axes.grid(True)
    style.finish(figure, f"Attention in {base['precision']} under this device's roof (open: causal "
                 "mask)", _legend(rows, names), columns=4)
    return figure


def _legend(rows: pd.DataFrame, names: list[str]) -> list[Line2D]:
    benches = dict(zip(rows["name"], rows["bench"], strict=True))
    colours = {name: palette.FRAMEWORKS.get(benches[name], palette.OTHER)[0] for name in names}
    marks = [Line2D([], [], linestyle="none", color=colours[name], label=name,
                    marker=MARKERS[place % len(MARKERS)]) for place, name in enumerate(names)]
    return [Line2D([], [], color=style.INK, linewidth=1, label="memory, then products"), *marks]
