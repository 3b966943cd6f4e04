"""Scaling: throughput, speed-up and efficiency of several devices against one, which strategy wins, and what a step is made of.

A row on n devices is held against the verified row on one device that differs in nothing else: with the same batch per device it
scales weakly, with the same global batch strongly. Speed-ups are ratios of rates with the intervals of `statistics.ratio`.
"""

import math
from typing import Any

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, best_unit, number, span
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials.phases import NAMES
from analysis.trials.summary import times_of, without_diverged

SAME = ["framework", "release", "network", "device_kind", "threads", "precision", "tuning", "data"]
WORKLOAD = ["network", "batch", "device_kind", "threads", "precision", "tuning", "data", "scaling"]  # the batch of one device's row
PARTS = {"forward": "forward", "backward": "backward", "exposed": "aggregation, exposed", "update": "update"}
COUNTERS = {"nvlink_bytes_per_step": "NVLink sent", "pcie_rx_bytes_per_step": "PCIe received",
            "pcie_tx_bytes_per_step": "PCIe sent"}
ENDS = ("", "_low", "_high")
LEFT = "step less its parts (%)"
UNDECIDED = "times as long, by too few processes to tell"


def curves(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each verified trial on several devices and each that it can be held against, and one for each of those.

    Columns are those of `rows` (of trials.csv) with `batch` of the one device, and `contestant`, `scaling` (weak or strong),
    `speedup` and `efficiency` with their `_low` and `_high`; a row on one device has speed-up 1.
    """
    campaign = without_diverged(campaign)
    verified = rows.assign(contestant=ranking.contestants(rows))[rows["verified"] == "yes"]
    single, found = verified[verified["devices"] == 1], []
    for _, base in single.iterrows():
        alike = verified[(verified["devices"] > 1) & (verified[SAME] == base[SAME]).all(axis=1)]
        for scaling, column in (("weak", "batch"), ("strong", "global_batch")):
            own = alike[alike[column] == base[column]]
            for strategy in dict.fromkeys(own["strategy"]):
                group = own[own["strategy"] == strategy]
                each = [_against(campaign, base, row) for _, row in pd.concat([base.to_frame().T, group]).iterrows()]
                found += [{**row, "contestant": group["contestant"].iloc[0], "strategy": strategy, "batch": base["batch"],
                           "scaling": scaling} for row in each]
    speeds = [f"{name}{end}" for name in ("speedup", "efficiency") for end in ENDS]
    return pd.DataFrame(found, columns=[*rows.columns, "contestant", "scaling", *speeds])


def why_not(rows: pd.DataFrame, scaled: pd.DataFrame) -> str:
    """Say which verified rows on several devices have no speed-up, and why; empty where all have one. `scaled`: of `curves`."""
    lonely = rows[(rows["verified"] == "yes") & (rows["devices"] > 1) & ~rows["trial"].isin(scaled["trial"])]
    if lonely.empty:
        return ""
    if len(scaled):
        names = ranking.contestants(rows).loc[lonely.index] + " " + lonely.apply(ranking.setting, axis=1, trials=rows)
        return f"Without a speed-up, for no verified row on one device differs in nothing else: {'; '.join(names)}."
    return _threads_differ(rows) or ("No speed-ups: no verified row on one device differs in nothing else from one on several. "
                                     "With 1 among the suite's devices there is one to hold them against.")


def _threads_differ(rows: pd.DataFrame) -> str:
    """Say that threads are why nothing can be held against one device; empty where that is not why."""
    def shared(columns: list[str]) -> bool:
        verified = rows[rows["verified"] == "yes"]
        one, several = (set(map(tuple, own[columns].to_numpy())) for own in (verified[verified["devices"] == 1],
                                                                             verified[verified["devices"] > 1]))
        return bool(one & several)

    if shared(SAME) or not shared([column for column in SAME if column != "threads"]):
        return ""
    return ("No speed-ups: several devices share the processor's cores (threads: all), so each has fewer threads than one device "
            "alone. With threads: 1 in the suite every device has as many.")


def table(scaled: pd.DataFrame) -> pd.DataFrame:
    """List throughput, speed-up, efficiency and traffic, a row a trial; `scaled` is what `curves` returns."""
    units = {column: best_unit(scaled[column], BYTE_UNITS) for column in COUNTERS if scaled[column].notna().any()}
    lines = [{
        **row[WORKLOAD], "framework": row["contestant"], "devices": row["devices"],
        "samples per second": number(row["samples_per_second"]), "speed-up": _with_span(row, "speedup"),
        "efficiency (%)": _with_span(row, "efficiency", 100.0),
        **{f"{COUNTERS[column]} ({unit})": number(row[column] / scale) for column, (unit, scale) in units.items()},
    } for _, row in scaled.iterrows()]
    return _varying(pd.DataFrame(lines), scaled)


def winners(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Name the fastest strategy of each workload, number of devices and framework that has several; empty where none has.

    Another is as fast where the interval of the ratio contains 1; without an interval nothing is said of which is faster.
    """
    campaign = without_diverged(campaign)
    ranked = rows[(rows["verified"] == "yes") & (rows["devices"] > 1)]
    key = ["framework", "release", *ranking.GROUP]
    lines = []
    for _, group in ranked.groupby(key, sort=False, dropna=False):
        ordered = group.sort_values("step_seconds")
        if len(ordered) < 2:
            continue
        best, others = ordered.iloc[0], ordered.iloc[1:]
        ratios = {row["strategy"]: bootstrap.ratio(times_of(campaign, row["trial"]), times_of(campaign, best["trial"]))
                  for _, row in others.iterrows()}
        unit, scale = best_unit(group["step_seconds"], TIME_UNITS)
        longer = {name: f"{name} {number(found.value)}" for name, found in ratios.items() if not found.contains(1.0)}
        lines.append({
            **best[["framework", *ranking.GROUP]], "fastest": best["strategy"],
            "time of a step": f"{number(best['step_seconds'] / scale)} {unit}",
            "as fast, as far as can be seen": ", ".join(name for name in ratios if name not in longer),
            "times as long": ", ".join(words for name, words in longer.items() if ratios[name].has_interval),
            UNDECIDED: ", ".join(words for name, words in longer.items() if not ratios[name].has_interval),
        })
    table = ranking.without_constants(pd.DataFrame(lines), rows) if lines else pd.DataFrame()
    return table if any(line[UNDECIDED] for line in lines) else table.drop(columns=UNDECIDED, errors="ignore")


def phase_table(parts: pd.DataFrame) -> pd.DataFrame:
    """List the parts of each step with their intervals, and what they leave of it; `parts` is what `phases.table` returns."""
    unit, scale = best_unit(parts["step"], TIME_UNITS)
    words = {**PARTS, "hidden": "aggregation, hidden", "isolated": "aggregation alone", "step": "step"}
    lines = [{
        **row[ranking.GROUP], "framework": name,
        **{f"{words[part]} ({unit})": _with_span(row, part, 1 / scale) for part in NAMES if parts[part].notna().any()},
        LEFT: _left_over(row),
    } for name, (_, row) in zip(ranking.contestants(parts), parts.iterrows(), strict=True)]
    return ranking.without_constants(pd.DataFrame(lines), parts)


def _left_over(row: "pd.Series[Any]") -> str:
    """What the parts of a step leave of it, in percent, as they are medians of differences; nothing where one was not timed."""
    parts = [float(row[part]) for part in PARTS if row["devices"] > 1 or part != "exposed"]
    share = 100 * (1 - sum(parts) / float(row["step"]))
    return "" if math.isnan(share) else f"{share:+.1f}"


def _against(campaign: Campaign, base: "pd.Series[Any]", row: "pd.Series[Any]") -> dict[str, Any]:
    """Speed-up and efficiency of one row: its rate over that of one device."""
    found = bootstrap.Estimate(1.0, 1.0, 1.0, 0)
    if row["trial"] != base["trial"]:
        found = bootstrap.ratio(times_of(campaign, base["trial"]), times_of(campaign, row["trial"]))
    samples, devices = row["global_batch"] / base["global_batch"], row["devices"]
    ends = dict(zip(ENDS, (found.value, found.low, found.high), strict=True))
    return {**row, **{f"speedup{end}": samples * value for end, value in ends.items()},
            **{f"efficiency{end}": samples * value / devices for end, value in ends.items()}}


def _with_span(row: "pd.Series[Any]", name: str, scale: float = 1.0) -> str:
    value, low, high = (float(row[f"{name}{end}"]) * scale for end in ENDS)
    if pd.isna(value):
        return ""
    return number(value) + ("" if pd.isna(low) or low == high else f" ({span(low, high)})")


def _varying(lines: pd.DataFrame, scaled: pd.DataFrame) -> pd.DataFrame:
    """Leave out what is the same in all rows, but the network and the batch, and scaling that is strong."""
    constant = [column for column in WORKLOAD[2:] if scaled[column].nunique(dropna=False) == 1
                and (column != "scaling" or (scaled[column] == "weak").all())]
    return lines.drop(columns=constant)
