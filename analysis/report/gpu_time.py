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
    """Draw a bar a trial, as long as its timed step and stacked by the classes' shares.

    The slowest trial of each network and setting has the full width: milliseconds and microseconds
    on one axis would leave the latter as dots.
    """
    present = [name for name in CLASSES if name in times]
    # Kernels that overlap, or that the trace slowed down, sum to more than the step.
    shown = (times["step_seconds"] - times[IDLE]) / times[present].sum(axis=1)
    slowest = times.groupby(ranking.ACROSS_TIERS, dropna=False)["step_seconds"].transform("max")
    figure, axes = style.bars(ranking.labels(times))
    style.stack(axes, {**{name: 100 * times[name] * shown / slowest for name in present},
                       IDLE: 100 * times[IDLE] / slowest}, palette.KERNELS)
    unit, scale = best_unit(times["step_seconds"], TIME_UNITS)
    for row, (seconds, longest) in enumerate(zip(times["step_seconds"], slowest, strict=True)):
        axes.text(100 * seconds / longest + 1, row, f"{number(seconds / scale)} {unit}",
                  va="center")
    axes.set_xlim(0, 115)
    axes.set_xlabel("time in a mini-batch, the slowest row of each network and setting = 100")
    style.finish(figure, "Where the GPU's time goes", columns=6)
    return figure
