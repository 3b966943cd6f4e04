"""Tables for people: every cell is text with its interval, three significant digits and a unit in the heading.

Rows are compared only within a group that differs in nothing but framework and release; what varies between groups stands in a
column, what does not is returned by `throughout` for the caption. A row that is not verified is shown and never ranked.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials.summary import times_of, without_diverged

GROUP = ["network", "batch", "devices", "device_kind", "threads", "precision", "tuning", "data"]
ALWAYS = ("network", "batch")
TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
BYTE_UNITS = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
JOULE_UNITS = (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3))
TRAFFIC = {  # column of trials.csv: heading, units
    "payload_h2d_bytes_per_step": ("copied to the GPU", BYTE_UNITS), "payload_d2h_bytes_per_step": ("copied back", BYTE_UNITS),
    "pcie_rx_bytes_per_step": ("PCIe received", BYTE_UNITS), "pcie_tx_bytes_per_step": ("PCIe sent", BYTE_UNITS),
    "nvlink_bytes_per_step": ("NVLink sent", BYTE_UNITS), "energy_joules_per_step": ("energy", JOULE_UNITS),
}
CHECKS = {"gpm_ratio": "PCIe received: GPM / counters", "energy_counter_ratio": "energy: counter / power"}
NO_DIFFERENCE = "no difference seen"
FASTEST = "fastest"
TOO_FEW = "too few processes to tell"


def relative(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """Compare each verified trial with the fastest verified one of its group.

    Columns: GROUP, contestant, framework, strategy, trial, relative_speed (1 is the fastest's, smaller is slower) with _low and
    _high, and verdict: fastest, slower, `NO_DIFFERENCE` where the interval contains 1, or `TOO_FEW`.
    """
    campaign = without_diverged(campaign)
    ranked = trials.assign(contestant=contestants(trials))[trials["verified"] == "yes"]
    rows = []
    for _, group in ranked.groupby(GROUP, sort=False, dropna=False):
        group = group.sort_values("step_seconds")
        best = group.iloc[0]
        for index, trial in group.iterrows():
            found = bootstrap.ratio(times_of(campaign, best["trial"]), times_of(campaign, trial["trial"]))
            if index == best.name:
                found, verdict = bootstrap.Estimate(1.0, 1.0, 1.0, found.processes), FASTEST
            elif not found.has_interval:
                verdict = TOO_FEW
            else:
                verdict = NO_DIFFERENCE if found.contains(1.0) else "slower"
            rows.append({**trial[[*GROUP, "contestant", "framework", "strategy", "trial"]], "relative_speed": found.value,
                         "relative_speed_low": found.low, "relative_speed_high": found.high, "verdict": verdict})
    speed = ["relative_speed", "relative_speed_low", "relative_speed_high"]
    columns = [*GROUP, "contestant", "framework", "strategy", "trial", *speed, "verdict"]
    return pd.DataFrame(rows, columns=columns)


def answer(trials: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """Put the contestants side by side, a row a group, with a verdict. `speeds` is what `relative` returns.

    Batches that their devices cannot share belong to no group: they are left to `refused`.
    """
    trials = trials.assign(contestant=contestants(trials))
    order = list(dict.fromkeys(trials["contestant"]))
    unit, scale = best_unit(trials["step_seconds"], TIME_UNITS)
    shared = _shared(trials)
    trials = trials[shared] if shared.any() else trials
    rows = []
    for key, group in trials.groupby(GROUP, sort=False, dropna=False):
        cells = {f"{trial['contestant']} ({unit})": _time_cell(trial, scale) for _, trial in group.iterrows()}
        ranked = speeds[speeds["trial"].isin(group["trial"])]
        rows.append({**dict(zip(GROUP, key, strict=True)), **cells, "verdict": _verdict(ranked)})
    table = pd.DataFrame(rows, columns=[*GROUP, *(f"{name} ({unit})" for name in order), "verdict"]).fillna("")
    return without_constants(table, trials)


def times(trials: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """List every measured trial: time per mini-batch, interval, rate, relative speed, loss and whether it is verified."""
    measured = trials.assign(contestant=contestants(trials))[trials["status"] == "ok"]
    unit, scale = best_unit(measured["step_seconds"], TIME_UNITS)
    by_trial = speeds.set_index("trial")
    rows = [{
        **row[GROUP], "framework": row["contestant"],
        f"time per mini-batch ({unit})": number(row["step_seconds"] / scale),
        f"95 % interval ({unit})": span(row["step_seconds_low"] / scale, row["step_seconds_high"] / scale),
        "samples per second": number(row["samples_per_second"]),
        **({"share of the peak (%)": number(100 * row["mfu"])} if measured["mfu"].notna().any() else {}),
        "relative speed": _speed(by_trial.loc[row["trial"]]) if row["trial"] in by_trial.index else "not ranked",
        "loss, first to last": f"{number(row['loss_first'])} to {number(row['loss_last'])}",
        "processes x windows": f"{row['processes']} x {row['windows'] / row['processes']:g}",
        "verified": row["verified"],
    } for _, row in measured.iterrows()]
    return without_constants(pd.DataFrame(rows), trials)


def listing(trials: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """List the trials of each group below each other, from the fastest down, for as many contestants as there may be.

    What a group has in common stands in its first row only.
    """
    unit, scale = best_unit(trials["step_seconds"], TIME_UNITS)
    heading = f"time ({unit})"
    by_trial = speeds.set_index("trial")
    table = trials.assign(contestant=contestants(trials), ranked=trials["verified"] == "yes")
    rows: list[dict[str, Any]] = []
    for key, group in table.groupby(GROUP, sort=False, dropna=False):
        common = dict(zip(GROUP, key, strict=True))
        for _, row in group.sort_values(["ranked", "step_seconds"], ascending=[False, True]).iterrows():
            speed = _speed(by_trial.loc[row["trial"]]) if row["trial"] in by_trial.index else "not ranked"
            rows.append({**common, "framework": row["contestant"], heading: _time_cell(row, scale), "relative speed": speed})
            common = dict.fromkeys(GROUP, "")
    return without_constants(pd.DataFrame(rows), trials)


def memory(trials: pd.DataFrame) -> pd.DataFrame:
    """List the peak memory of every measured trial that could say it."""
    known = trials.assign(contestant=contestants(trials))
    known = known[(known["status"] == "ok") & known["peak_memory_bytes"].notna()]
    unit, scale = best_unit(known["peak_memory_bytes"], BYTE_UNITS)
    heading = f"peak memory ({unit})"
    rows = [{**row[GROUP], "framework": row["contestant"], heading: number(row["peak_memory_bytes"] / scale)}
            for _, row in known.iterrows()]
    return without_constants(pd.DataFrame(rows), trials)


def traffic(trials: pd.DataFrame, checks: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """List bytes copied, bytes over the links and joules a mini-batch of every row that has any.

    `checks` is `counters.cross_check` by trial. The link carries headers and commands besides what is copied.
    Columns that are empty in all rows are left out.
    """
    known = trials.assign(contestant=contestants(trials))
    known = known[known[list(TRAFFIC)].notna().any(axis=1)]
    table = known[GROUP].assign(framework=known["contestant"])
    for column, (name, units) in TRAFFIC.items():
        unit, scale = best_unit(known[column], units)
        table[f"{name} ({unit})"] = (known[column] / scale).map(number)
    payload = known["payload_h2d_bytes_per_step"].replace(0, np.nan)
    table["PCIe received / copied"] = (known["pcie_rx_bytes_per_step"] / payload).map(number)
    throttled = known["throttled_windows"].astype("object")
    table["throttled windows"] = [f"{count} of {windows}" if count is not pd.NA else ""
                                  for count, windows in zip(throttled, known["windows"], strict=True)]
    for check, heading in CHECKS.items():
        table[heading] = [number(checks.get(trial, {}).get(check)) for trial in known["trial"]]
    measured = [column for column in table if column in GROUP or (table[column] != "").any()]
    return without_constants(table[measured], trials)


def refused(trials: pd.DataFrame) -> pd.DataFrame:
    """List the trials that are not ranked, with their reasons."""
    kept = trials[(trials["status"] != "ok") | (trials["verified"] != "yes")]
    verdict = kept["status"].where(kept["status"] != "ok", "not verified")
    whole = kept["global_batch"].astype(str) + " over " + kept["devices"].astype(str)
    kept = kept.assign(batch=kept["batch"].astype(object).where(_shared(kept), whole))
    table = pd.DataFrame({**kept[GROUP], "framework": contestants(trials).loc[kept.index], "verdict": verdict,
                          "reason": kept["reason"]})
    return without_constants(table, trials)


def remarks(trials: pd.DataFrame) -> pd.DataFrame:
    """List what must be known of ranked trials: processes that failed, intervals that are missing, looser comparisons."""
    kept = trials[(trials["verified"] == "yes") & (trials["reason"] != "")]
    table = pd.DataFrame({**kept[GROUP], "framework": contestants(trials).loc[kept.index], "remark": kept["reason"]})
    return without_constants(table, trials)


def contestants(trials: pd.DataFrame) -> "pd.Series[str]":
    """Name each row's framework, with its release and strategy where it has several in the table, and its side of a comparison."""
    several = trials.groupby("framework")["release"].transform("nunique") > 1
    names = trials["framework"].where(~several, trials["framework"] + " " + trials["release"].fillna(""))
    strategies = trials["strategy"].where(trials["strategy"] != "")
    several = strategies.groupby(trials["framework"]).transform("nunique") > 1
    names = names.where(~several, (names + " " + trials["strategy"]).str.strip())
    return (names + " " + trials["side"]).str.strip() if "side" in trials else names


def throughout(trials: pd.DataFrame) -> str:
    """Say what all trials have in common, in words, for the caption of a table."""
    words = {"devices": "{} device(s)", "device_kind": "{}", "threads": "{} threads", "precision": "{}", "tuning": "{} tuning",
             "data": "batches on the {}"}
    places = {"device": "batches already on the device", "host": "batches copied from host memory each step",
              "real": "a real data set"}
    parts = []
    for column in _constant(trials):
        value = trials[column].iloc[0]
        if pd.isna(value):
            continue
        if column == "data":
            parts.append(places.get(value, f"data {value}"))
        elif column in ("devices", "threads") and value == 1:
            parts.append(f"1 {column[:-1]}")
        else:
            parts.append(words[column].format(value).replace("device(s)", "devices"))
    return ", ".join(parts)


def setting(trial: "pd.Series[Any]", trials: pd.DataFrame, dropped: Iterable[str] = ()) -> str:
    """Name a row's group by its network, its batch and whatever else varies in the table, but what is `dropped`."""
    constant = {*_constant(trials), *dropped}
    parts = [str(trial["network"])]
    for column in GROUP[1:]:
        if column in constant or pd.isna(trial[column]):
            continue
        words = {"batch": "batch {}", "devices": "{} devices", "threads": "{} threads", "tuning": "{}", "data": "data {}"}
        text = words.get(column, "{}").format(trial[column])
        parts.append(text.removesuffix("s") if trial[column] == 1 else text)
    return ", ".join(parts)


def number(value: Any) -> str:
    """Write a number with three significant digits and no exponent; nothing for a missing one."""
    if pd.isna(value):
        return ""
    value = float(value)
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - int(np.floor(np.log10(abs(float(f"{value:.2e}"))))))
    return f"{float(f'{value:.2e}'):,.{decimals}f}"


def span(low: float, high: float) -> str:
    """Write an interval; nothing for a missing one."""
    return "" if pd.isna(low) or pd.isna(high) else f"{number(low)} to {number(high)}"


def _shared(trials: pd.DataFrame) -> "pd.Series[bool]":
    """Say of each trial whether its devices share its batch evenly."""
    return trials["global_batch"].isna() | (trials["batch"] * trials["devices"] == trials["global_batch"])


def _time_cell(trial: "pd.Series[Any]", scale: float) -> str:
    if trial["status"] != "ok":
        return str(trial["status"])
    interval = span(trial["step_seconds_low"] / scale, trial["step_seconds_high"] / scale)
    time = number(trial["step_seconds"] / scale) + (f" ({interval})" if interval else "")
    return time if trial["verified"] == "yes" else f"{time}, not verified"


def _verdict(speeds: pd.DataFrame) -> str:
    """Put a group's ranking into words; `speeds` is sorted from the fastest down."""
    if speeds.empty:
        return "none verified"
    names = speeds["contestant"].tolist()
    if len(names) == 1:
        return f"only {names[0]}"
    equal = speeds[speeds["verdict"] == NO_DIFFERENCE]["contestant"].tolist()
    if equal:
        return f"{NO_DIFFERENCE} between {' and '.join([names[0], *equal])}"
    if TOO_FEW in set(speeds["verdict"]):
        return TOO_FEW
    second = speeds.iloc[1]
    interval = span(1 / second["relative_speed_high"], 1 / second["relative_speed_low"])
    return f"{names[0]} {number(1 / second['relative_speed'])} times ({interval}) as fast as {names[1]}"


def _speed(row: "pd.Series[Any]") -> str:
    if row["verdict"] == FASTEST:
        return "1, the fastest"
    interval = span(row["relative_speed_low"], row["relative_speed_high"])
    text = number(row["relative_speed"]) + (f" ({interval})" if interval else "")
    return text if row["verdict"] == "slower" else f"{text}, {row['verdict']}"


def _constant(trials: pd.DataFrame) -> list[str]:
    return [column for column in GROUP if column not in ALWAYS and trials[column].nunique(dropna=False) == 1]


def without_constants(table: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Drop the columns that say the same of every trial of the campaign, and number the rows anew."""
    return table.drop(columns=_constant(trials), errors="ignore").reset_index(drop=True)


def best_unit(values: "Iterable[float] | pd.Series[Any]", units: tuple[tuple[str, float], ...]) -> tuple[str, float]:
    """Choose the largest unit in which the middle value is at least 1."""
    known = [float(value) for value in values if not pd.isna(value)]
    middle = np.median(known) if known else units[0][1]
    return next((unit for unit in units if middle >= unit[1]), units[-1])
