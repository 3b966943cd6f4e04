"""How many times as fast a GPU trains as the processor beside it: the same trial on both, in one campaign."""

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.display.ranking import GROUP
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials.summary import times_of, without_diverged

SAME = ["framework", "release", "network", "batch", "precision", "tuning", "data"]  # of two rows that are one trial on two devices
ON_CPU = {"trial": "cpu_trial", "threads": "cpu_threads", "step_seconds": "cpu_step_seconds"}
HEADROOM = 1.3  # of the axis beyond the largest value


def by_trial(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Pair each verified row on one GPU with the same one on the CPU, one for each number of threads.

    Columns: those of `rows` for the GPU's row, cpu_trial, cpu_threads, cpu_step_seconds, and speed_up (CPU time / GPU time) with
    speed_up_low and speed_up_high, missing where either has too few processes.
    """
    campaign = without_diverged(campaign)
    alone = rows[(rows["verified"] == "yes") & (rows["devices"] == 1)]
    on_cpu = alone[alone["device_kind"] == "cpu"][[*SAME, *ON_CPU]].rename(columns=ON_CPU)
    pairs = alone[alone["device_kind"] == "cuda"].merge(on_cpu, on=SAME)
    found = [bootstrap.ratio(times_of(campaign, cpu), times_of(campaign, gpu))
             for cpu, gpu in zip(pairs["cpu_trial"], pairs["trial"], strict=True)]
    return pairs.assign(speed_up=[each.value for each in found], speed_up_low=[each.low for each in found],
                        speed_up_high=[each.high for each in found])


def table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Write both times and the speed-up with its interval; `pairs` is what `by_trial` returns."""
    rows = []
    unit, scale = best_unit(pairs["step_seconds"], TIME_UNITS)
    slow_unit, slow_scale = best_unit(pairs["cpu_step_seconds"], TIME_UNITS)
    for name, (_, pair) in zip(ranking.contestants(pairs), pairs.iterrows(), strict=True):
        rows.append({**pair[GROUP].drop(["device_kind", "threads"]), "framework": name, "CPU threads": pair["cpu_threads"],
                     f"CPU ({slow_unit})": number(pair["cpu_step_seconds"] / slow_scale),
                     f"GPU ({unit})": number(pair["step_seconds"] / scale), "speed-up": number(pair["speed_up"]),
                     "95 % interval": span(pair["speed_up_low"], pair["speed_up_high"])})
    return ranking.without_constants(pd.DataFrame(rows), pairs)


def figure(pairs: pd.DataFrame) -> Figure:
    """Draw a bar a pair with its interval, framework by framework; `pairs` is what `by_trial` returns."""
    labels = [f"{ranking.setting(pair, pairs)}, {name}" + (f", {pair['cpu_threads']} threads" if several else "")
              for several in [pairs["cpu_threads"].nunique() > 1]
              for name, (_, pair) in zip(ranking.contestants(pairs), pairs.iterrows(), strict=True)]
    colours = [palette.FRAMEWORKS.get(framework, palette.OTHER)[0] for framework in pairs["framework"]]
    errors: Any = [(pairs["speed_up"] - pairs["speed_up_low"]).fillna(0), (pairs["speed_up_high"] - pairs["speed_up"]).fillna(0)]
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(style.PANEL[0] * style.PANELS_ABREAST, 1.4 + style.ROW_HEIGHT * len(pairs)), layout="constrained")
        axes = figure.subplots()
        axes.barh(range(len(pairs)), pairs["speed_up"], height=0.7, color=colours, xerr=errors, ecolor=style.INK)
        for row, value in enumerate(pairs["speed_up"]):
            axes.annotate(f" {number(value)}", (max(value, value + errors[1].iloc[row]), row), va="center")
        axes.set_yticks(range(len(pairs)), labels)
        axes.set_xlim(0, HEADROOM * float(pairs[["speed_up", "speed_up_high"]].to_numpy(float, na_value=0).max()))
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_xlabel("times as fast as the processor")
        known = "with 95 % intervals" if pairs["speed_up_low"].notna().any() else "too few processes for intervals"
        axes.set_title(f"A GPU's speed-up over the processor, {known}")
    return figure
