"""Draws what the choice of convolution algorithm is worth: a bar a strategy for each network."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import TIME_UNITS, best_unit, number

# Okabe and Ito's, one for each strategy.
COLOURS = ("#009e73", "#e69f00", "#d55e00", "#8c8c8c")
# Of a network's row.
BAR_HEIGHT = 0.19


@style.styled
def choices(layers: pd.DataFrame, strategies: Sequence[str]) -> Figure:
    """Draw a panel for each arithmetic; `layers` has a column of seconds for each strategy.

    A strategy that finds no algorithm for one of a network's layers has no bar there.
    """
    grouped = layers.groupby(["network", "batch", "math"], sort=False)[list(strategies)]
    totals = grouped.apply(pd.DataFrame.sum, skipna=False).reset_index()
    maths = list(dict.fromkeys(totals["math"]))
    unit, scale = best_unit(totals["fastest"], TIME_UNITS)
    size = (style.WIDTH, 1.6 + 0.75 * totals.groupby("math").size().max())
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(maths), squeeze=False, sharey=True)[0]
    for axes, math in zip(panels, maths, strict=True):
        mine = totals[totals["math"] == math].reset_index(drop=True)
        for place, (strategy, colour) in enumerate(zip(strategies, COLOURS, strict=False)):
            rows = [row + (place - (len(strategies) - 1) / 2) * BAR_HEIGHT for row in mine.index]
            values = mine[strategy] / scale
            axes.barh(rows, values, height=0.9 * BAR_HEIGHT, color=colour, label=strategy)
            for row, value in zip(rows, values, strict=True):
                text, end = (" none", 0) if pd.isna(value) else (f" {number(value)}", value)
                axes.annotate(text, (end, row), va="center", fontsize=7)
        axes.set_yticks(mine.index, [f"{row.network}, batch {row.batch}"
                                     for row in mine.itertuples()])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.margins(x=0.12)
        axes.set_title(math)
        axes.set_xlabel(f"all convolutions of a mini-batch ({unit})")
    panels[0].invert_yaxis()
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower left", ncols=len(strategies))
    return figure
