"""Where the GPU's time goes: seconds of each class of kernel in a mini-batch, as numbers, as a table and as a figure."""

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number
from analysis.display.ranking import GROUP
from analysis.traces.kernels import BUSY, CLASSES, IDLE

ROW_HEIGHT = 0.34  # inches of a bar


def by_class(kernels: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Add up seconds per mini-batch by class, a row a traced trial with its columns of `trials`, a column a class that occurs.

    `busy` is the union of all activities and less than their sum where they overlap; `idle` is the rest of the timed step.
    """
    seconds = kernels.pivot_table(index="trial", columns="class", values="seconds_per_step", aggfunc="sum", fill_value=0.0)
    present = [name for name in CLASSES if name in seconds]
    table = trials[trials["status"] == "ok"].merge(seconds.reindex(columns=[*present, BUSY]).reset_index(), on="trial")
    return table.assign(**{IDLE: (table["step_seconds"] - table[BUSY]).clip(lower=0.0)})


def table(times: pd.DataFrame) -> pd.DataFrame:
    """Write the shares of all activity in percent, beside the busy time; `times` is what `by_class` returns."""
    present = [name for name in CLASSES if name in times]
    unit, scale = best_unit(times[BUSY], TIME_UNITS)
    rows = []
    for name, (_, trial) in zip(ranking.contestants(times), times.iterrows(), strict=True):
        total = trial[present].sum()
        rows.append({
            **trial[GROUP], "framework": name, f"busy per mini-batch ({unit})": number(trial[BUSY] / scale),
            "idle": _percent(trial["idle_share"]), **{kind: _percent(trial[kind] / total) for kind in present},
        })
    return ranking.without_constants(pd.DataFrame(rows), times)


def figure(times: pd.DataFrame) -> Figure:
    """Draw a bar a trial, stacked by class, up to its timed step; `times` is what `by_class` returns."""
    present = [name for name in (*CLASSES, IDLE) if name in times]
    unit, scale = best_unit(times["step_seconds"], TIME_UNITS)
    labels = [f"{name}, {ranking.setting(trial, times)}"
              for name, (_, trial) in zip(ranking.contestants(times), times.iterrows(), strict=True)]
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(style.PANEL[0] * style.PANELS_ABREAST, 1.8 + ROW_HEIGHT * len(times)), layout="constrained")
        axes = figure.subplots()
        left: Any = 0.0
        for name in present:
            axes.barh(range(len(times)), times[name] / scale, left=left, height=0.7, color=palette.KERNELS[name], label=name)
            left = left + times[name] / scale
        axes.set_yticks(range(len(times)), labels)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_xlabel(f"time in a mini-batch ({unit})")
        figure.suptitle("Where the GPU's time goes", x=0.01, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=6)
        return figure


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.1f} %"
