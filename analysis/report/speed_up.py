"""How many times as fast a GPU trains as the processor beside it: one trial on both."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials.summary import times_of, without_diverged

# What two rows share if they are one trial on two devices.
SAME = ["framework", "release", "network", "batch", "precision", "tuning", "data"]
ON_CPU = {"trial": "cpu_trial", "threads": "cpu_threads", "step_seconds": "cpu_step_seconds"}
# How far the axis reaches, as a multiple of the largest value.
HEADROOM = 1.3


def by_trial(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """Pair each verified row on one GPU with the same on the CPU, one for each number of threads.

    Columns: those of the GPU's row, cpu_trial, cpu_threads, cpu_step_seconds, and speed_up (CPU
    time / GPU time) with _low and _high, missing where either side has too few processes.
    """
    campaign = without_diverged(campaign)
    alone = trials[(trials["verified"] == "yes") & (trials["devices"] == 1)]
    on_cpu = alone[alone["device_kind"] == "cpu"][[*SAME, *ON_CPU]].rename(columns=ON_CPU)
    pairs = alone[alone["device_kind"] == "cuda"].merge(on_cpu, on=SAME)
    found = [bootstrap.ratio(times_of(campaign, cpu), times_of(campaign, gpu))
             for cpu, gpu in zip(pairs["cpu_trial"], pairs["trial"], strict=True)]
    columns = [*bootstrap.NOT_MEASURED.columns("speed_up")]
    speed_ups = pd.DataFrame([each.columns("speed_up") for each in found], pairs.index, columns)
    return pairs.join(speed_ups)


def table(pairs: pd.DataFrame) -> pd.DataFrame:
    """List both times and the speed-up; `pairs` is what `by_trial` returns."""
    unit, scale = best_unit(pairs["step_seconds"], TIME_UNITS)
    cpu_unit, cpu_scale = best_unit(pairs["cpu_step_seconds"], TIME_UNITS)
    found = ranking.table(pairs, lambda pair: {
        "CPU threads": pair["cpu_threads"],
        f"CPU ({cpu_unit})": number(pair["cpu_step_seconds"] / cpu_scale),
        f"GPU ({unit})": number(pair["step_seconds"] / scale),
        "speed-up": number(pair["speed_up"]),
        "95 % interval": span(pair["speed_up_low"], pair["speed_up_high"])})
    return found.drop(columns=["device_kind", "threads"], errors="ignore")


@style.styled
def figure(pairs: pd.DataFrame) -> Figure:
    """Draw a bar a pair with its interval."""
    names, value = ranking.contestants(pairs), pairs["speed_up"]
    several = pairs["cpu_threads"].nunique() > 1
    labels = [f"{ranking.setting(pair, pairs)}, {name}"
              + (f", {pair['cpu_threads']} threads" if several else "")
              for name, (_, pair) in zip(names, pairs.iterrows(), strict=True)]
    colours = [palette.FRAMEWORKS.get(each, palette.OTHER)[0] for each in pairs["framework"]]
    errors: Any = [(value - pairs["speed_up_low"]).fillna(0),
                   (pairs["speed_up_high"] - value).fillna(0)]
    figure, axes = style.bars(labels)
    axes.barh(range(len(pairs)), value, height=0.7, color=colours, xerr=errors, ecolor=style.INK)
    for row, (each, above) in enumerate(zip(value, errors[1], strict=True)):
        axes.annotate(f" {number(each)}", (each + above, row), va="center")
    ends = pairs[["speed_up", "speed_up_high"]].to_numpy(float, na_value=0)
    axes.set_xlim(0, HEADROOM * float(ends.max()))
    axes.set_xlabel("times as fast as the processor")
    known = pairs["speed_up_low"].notna().any()
    intervals = "with 95 % intervals" if known else "too few processes for intervals"
    style.finish(figure, f"The GPU's speed-up over the processor, {intervals}")
    return figure
