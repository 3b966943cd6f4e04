"""Where the GPU's time goes: seconds of each class of kernel in a mini-batch."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, percent
from analysis.traces.kernels import BUSY, CLASSES, IDLE, NO_TRACE


def by_class(kernels: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Add the seconds per mini-batch of each class that occurs to the rows of traced trials.

    `busy` is the union of all activities, less than their sum where they overlap. `idle` is the
    rest of the timed step.
    """
    kernels = kernels[kernels["class"] != NO_TRACE]
    seconds = kernels.pivot_table(index="trial", columns="class", values="seconds_per_step",
                                  aggfunc="sum", fill_value=0.0)
    present = [name for name in CLASSES if name in seconds]
    seconds = seconds.reindex(columns=[*present, BUSY]).reset_index()
    table = trials[trials["status"] == "ok"].merge(seconds, on="trial")
    return table.assign(**{IDLE: (table["step_seconds"] - table[BUSY]).clip(lower=0.0)})


def table(times: pd.DataFrame) -> pd.DataFrame:
    """List each class's share of all activity; `times` is what `by_class` returns."""
    present = [name for name in CLASSES if name in times]
    unit, scale = best_unit(times[BUSY], TIME_UNITS)
    return ranking.table(times, lambda row: {
        f"busy per mini-batch ({unit})": number(row[BUSY] / scale),
        "idle": percent(row["idle_share"], ".1f"),
        **{kind: percent(row[kind] / row[present].sum(), ".1f") for kind in present}})


@style.styled
def figure(times: pd.DataFrame) -> Figure:
    """Draw a bar a trial, stacked by class, up to its timed step."""
    unit, scale = best_unit(times["step_seconds"], TIME_UNITS)
    figure, axes = style.bars(ranking.labels(times))
    parts = {name: times[name] / scale for name in (*CLASSES, IDLE) if name in times}
    style.stack(axes, parts, palette.KERNELS)
    axes.set_xlabel(f"time in a mini-batch ({unit})")
    style.finish(figure, "Where the GPU's time goes", columns=6)
    return figure
