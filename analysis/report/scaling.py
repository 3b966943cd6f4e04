"""Scaling: throughput, speed-up and efficiency of several devices, strategies, parts of a step.

A row on n devices is compared with the verified row on one device that differs in nothing else:
with the same batch per device it scales weakly, with the same global batch strongly. Speed-ups are
ratios of rates, with the intervals of `bootstrap.ratio`.
"""

import math
from typing import Any

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, ENDS, TIME_UNITS, best_unit, cell, number
from analysis.display.ranking import GROUP
from analysis.proof.plausibility import SAME
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials.phases import NAMES
from analysis.trials.summary import times_of, without_diverged

# The batch is that of the row on one device.
WORKLOAD = ["network", "batch", "device_kind", "threads", "precision", "tuning", "data", "scaling"]
PARTS = {"forward": "forward", "backward": "backward", "exposed": "aggregation, exposed",
         "update": "update"}
COUNTERS = {"nvlink_bytes_per_step": "NVLink sent", "pcie_rx_bytes_per_step": "PCIe received",
            "pcie_tx_bytes_per_step": "PCIe sent"}
LEFT = "step less its parts (%)"
UNDECIDED = "times as long, by too few processes to tell"
THREADS_DIFFER = (
    "No speed-ups: several devices share the processor's cores (threads: all), so each has fewer "
    "threads than one device alone. With threads: 1 in the suite, all have the same number.")
NONE_ALONE = (
    "No speed-ups: no verified row on one device differs in nothing else from one on several. "
    "Add 1 to the suite's devices to have one.")


def curves(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """Compare verified trials on several devices with their trial on one device.

    Returns a row for each of both. Columns: those of `trials`, where `batch` is that of the one
    device, `contestant`, `scaling` (weak or strong), and `speedup` and `efficiency` with `_low` and
    `_high`. On one device the speedup is 1.
    """
    campaign = without_diverged(campaign)
    verified = trials.assign(contestant=ranking.contestants(trials))[trials["verified"] == "yes"]
    found = []
    for _, base in verified[verified["devices"] == 1].iterrows():
        alike = (verified["devices"] > 1) & (verified[SAME] == base[SAME]).all(axis=1)
        for scaling, column in (("weak", "batch"), ("strong", "global_batch")):
            several = verified[alike & (verified[column] == base[column])]
            for strategy, group in several.groupby("strategy", sort=False):
                shared = {"contestant": group["contestant"].iloc[0], "strategy": strategy,
                          "batch": base["batch"], "scaling": scaling}
                for _, row in pd.concat([base.to_frame().T, group]).iterrows():
                    found.append({**row, **_speeds(campaign, base, row), **shared})
    speeds = [f"{name}{end}" for name in ("speedup", "efficiency") for end in ENDS]
    return pd.DataFrame(found, columns=[*trials.columns, "contestant", "scaling", *speeds])


def why_not(trials: pd.DataFrame, scaled: pd.DataFrame) -> str:
    """Say which verified rows on several devices have no speed-up, and why; empty if all have one.

    `scaled` is what `curves` returns.
    """
    verified = trials[trials["verified"] == "yes"]
    one, several = verified[verified["devices"] == 1], verified[verified["devices"] > 1]
    lonely = several[~several["trial"].isin(scaled["trial"])]
    if lonely.empty:
        return ""
    if len(scaled):
        names = [f"{name} {ranking.setting(row, trials)}" for name, (_, row) in zip(
            ranking.contestants(trials)[lonely.index], lonely.iterrows(), strict=True)]
        return ("Without a speed-up, because no verified row on one device differs in nothing "
                f"else: {'; '.join(names)}.")
    others = [column for column in SAME if column != "threads"]
    same, same_but_threads = (len(one.merge(several, on=columns)) for columns in (SAME, others))
    return THREADS_DIFFER if same_but_threads and not same else NONE_ALONE


def table(scaled: pd.DataFrame) -> pd.DataFrame:
    """List throughput, speed-up, efficiency and traffic of what `curves` returns."""
    units = {column: best_unit(scaled[column], BYTE_UNITS)
             for column in COUNTERS if scaled[column].notna().any()}
    lines = pd.DataFrame([{
        **row[WORKLOAD], "framework": row["contestant"], "devices": row["devices"],
        "samples per second": number(row["samples_per_second"]),
        "speed-up": _estimate(row, "speedup"), "efficiency (%)": _estimate(row, "efficiency", 0.01),
        **{f"{COUNTERS[column]} ({unit})": number(row[column] / scale)
           for column, (unit, scale) in units.items()},
    } for _, row in scaled.iterrows()])
    weak = (scaled["scaling"] == "weak").all()
    constant = [column for column in WORKLOAD[2:] if scaled[column].nunique(dropna=False) == 1]
    return lines.drop(columns=[column for column in constant if column != "scaling" or weak])


def winners(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """Name the fastest strategy of each workload on several devices; empty if none has several.

    Another is as fast if the interval of the ratio contains 1; without one nothing is decided.
    """
    campaign = without_diverged(campaign)
    ranked = trials[(trials["verified"] == "yes") & (trials["devices"] > 1)]
    lines = []
    for _, group in ranked.groupby(["framework", "release", *GROUP], sort=False, dropna=False):
        if len(group) < 2:
            continue
        group = group.sort_values("step_seconds")
        best = group.iloc[0]
        equal, longer, undecided = list[str](), list[str](), list[str]()
        for _, row in group.iloc[1:].iterrows():
            ratio = bootstrap.ratio(times_of(campaign, row["trial"]),
                                    times_of(campaign, best["trial"]))
            if ratio.contains(1.0):
                equal.append(row["strategy"])
            else:
                (longer if ratio.has_interval else undecided).append(
                    f"{row['strategy']} {number(ratio.value)}")
        unit, scale = best_unit(group["step_seconds"], TIME_UNITS)
        lines.append({
            **best[["framework", *GROUP]], "fastest": best["strategy"],
            "time of a step": f"{number(best['step_seconds'] / scale)} {unit}",
            "as fast, as far as can be seen": ", ".join(equal),
            "times as long": ", ".join(longer), UNDECIDED: ", ".join(undecided)})
    if not lines:
        return pd.DataFrame()
    found = ranking.without_constants(pd.DataFrame(lines), trials)
    return found if found[UNDECIDED].any() else found.drop(columns=UNDECIDED)


def phase_table(parts: pd.DataFrame) -> pd.DataFrame:
    """List the parts of each step and what they leave of it; `parts` is from `phases.table`."""
    unit, scale = best_unit(parts["step"], TIME_UNITS)
    words = {**PARTS, "hidden": "aggregation, hidden", "isolated": "aggregation alone",
             "step": "step"}
    known = [part for part in NAMES if parts[part].notna().any()]
    return ranking.table(parts, lambda row: {
        **{f"{words[part]} ({unit})": _estimate(row, part, scale) for part in known},
        LEFT: _left_over(row)})


def _left_over(row: "pd.Series[Any]") -> str:
    """Return what the parts leave of the step in percent; nothing if one was not timed."""
    parts = [float(row[part]) for part in PARTS if row["devices"] > 1 or part != "exposed"]
    share = 100 * (1 - sum(parts) / float(row["step"]))
    return "" if math.isnan(share) else f"{share:+.1f}"


def _speeds(
        campaign: Campaign, base: "pd.Series[Any]", row: "pd.Series[Any]") -> dict[str, float]:
    """Return speed-up and efficiency of a row: its rate over that of one device."""
    ratio = bootstrap.Estimate(1.0, 1.0, 1.0, 0)
    if row["trial"] != base["trial"]:
        ratio = bootstrap.ratio(times_of(campaign, base["trial"]), times_of(campaign, row["trial"]))
    samples = row["global_batch"] / base["global_batch"]
    return {name: samples * value / devices
            for column, devices in (("speedup", 1), ("efficiency", row["devices"]))
            for name, value in ratio.columns(column).items()}


def _estimate(row: "pd.Series[Any]", name: str, scale: float = 1.0) -> str:
    alone = row[f"{name}_low"] == row[f"{name}_high"]
    return number(row[name] / scale) if alone else cell(row, name, scale)
