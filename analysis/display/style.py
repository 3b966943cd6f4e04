"""The style that all figures share: fonts, sizes, axes, legends.

A figure is a white card. `INK` and `GRID` are used for nothing else, so that a page can replace
them in the SVG by colours of its own.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.display.palette import SeriesStyle

INK = "#24292f"
GRID = "#d0d7de"
LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
HATCHES = (None, "///", "...", "xxx")
DASHED = (0, (4, 3))
# Sizes in inches.
PANEL = (4.3, 2.9)
PANELS_ABREAST = 2
WIDTH = PANEL[0] * PANELS_ABREAST
ROW_HEIGHT = 0.34
# A title's share of the width: Chromium draws the SVG's text 3 % wider than Matplotlib does.
TITLE = 0.95
# In fewer inches a decade, the labels 5,000, 10,000 and 20,000 of a horizontal axis would meet.
DECADE = 1.5

STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "figure.titlesize": 11,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "grid.color": GRID, "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "figure.facecolor": "white",
    "axes.facecolor": "none", "savefig.facecolor": "white", "svg.fonttype": "none",
    "svg.hashsalt": "dlbench",
}
styled = mpl.rc_context(STYLE)  # a decorator of functions that draw a figure


def panels(count: int, width: float = 0.0, each: tuple[float, float] = PANEL,
           abreast: int = PANELS_ABREAST) -> tuple[Figure, list[Axes]]:
    """Open a figure with `count` panels of a size in inches, at least `width` wide."""
    across = min(abreast, max(1, count))
    down = max(1, -(-count // across))
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)
    size = (max(width, each[0] * across), 0.7 + each[1] * down)
    figure = Figure(figsize=size, layout=layout)
    grid = list(figure.subplots(down, across, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def bars(labels: Sequence[str], height: float = ROW_HEIGHT) -> tuple[Figure, Axes]:
    """Open a figure of horizontal bars with a labelled row each, from the top down."""
    figure = Figure(figsize=(WIDTH, 1.4 + height * len(labels)), layout="constrained")
    axes = figure.subplots()
    label_rows(axes, labels)
    return figure, axes


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label rows from the top down."""
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="x")


def stack(axes: Axes, parts: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """Draw a bar a row, stacked from its named parts."""
    left: Any = 0.0
    for name, widths in parts.items():
        axes.barh(range(len(widths)), widths, left=left, height=0.7, color=colours[name],
                  edgecolor=GRID, linewidth=0.3, label=name)
        left = left + widths


def finish(figure: Figure, title: str, handles: Sequence[Any] = (), columns: int = 4) -> None:
    """Set the title and, below all panels, the legend; without `handles`, of labelled artists.

    A narrow figure gets a title of several lines and a legend of fewer columns.
    """
    heading = figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    room = TITLE * figure.bbox.width
    length = int(len(title) * room / _width(heading))
    while _width(heading) > room:
        heading.set_text(textwrap.fill(title, length))
        length -= 1
    handles = handles or figure.axes[0].get_legend_handles_labels()[0]
    for number in range(min(columns, len(handles)), 0, -1):
        shown = figure.legend(handles=handles, loc="outside lower left", ncols=number,
                              handlelength=2.6)
        if number == 1 or _width(shown) <= figure.bbox.width:
            break
        shown.remove()


def _width(artist: Artist) -> float:
    return float(artist.get_window_extent().width)


def legend(styles: Mapping[str, SeriesStyle]) -> list[Line2D]:
    """Return a legend's handle for each series."""
    return [Line2D([], [], label=name, **line(style)) for name, style in styles.items()]


def line(style: SeriesStyle) -> dict[str, Any]:
    """Turn a style into arguments of `Axes.plot`: open and broken from the second series on."""
    return {"color": style.colour, "marker": style.marker, "markersize": 6, "markeredgewidth": 1.4,
            "markerfacecolor": "none" if style.number else style.colour,
            "linestyle": LINES[style.number % len(LINES)]}


def bar_legend(styles: Mapping[str, SeriesStyle]) -> list[Patch]:
    """Return a legend's handle for each series of bars."""
    return [Patch(label=name, **bar(style)) for name, style in styles.items()]


def bar(style: SeriesStyle) -> dict[str, Any]:
    """Turn a style into arguments of `Axes.bar`: hatched from the second series on."""
    return {"facecolor": "none" if style.number else style.colour, "edgecolor": style.colour,
            "linewidth": 1.2, "hatch": HATCHES[style.number % len(HATCHES)]}


def one_two_five(axis: Axis) -> None:
    """Label a logarithmic axis that has its data in plain numbers: 1, 2, 5, 10, 20 ...

    Where those would meet, only 1, 10, 100 ... are labelled.
    """
    low, high = axis.get_view_interval()
    inches = axis.axes.get_window_extent().width / axis.axes.figure.dpi
    crowded = isinstance(axis, XAxis) and inches < DECADE * math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1,) if crowded else (1, 2, 5)))
    in_plain_numbers(axis)
    axis.set_minor_formatter(NullFormatter())


def in_plain_numbers(axis: Axis) -> None:
    """Label an axis as in 0.5 and 1,000,000."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
