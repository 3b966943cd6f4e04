"""The tables of a report: every cell is text, with its interval, and the unit is in the heading.

A row that is not verified is shown and never ranked. What all rows have in common has no column.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.display import ranking
from analysis.display.memory import COUNTED, HELD, by_driver
from analysis.display.numbers import (
    BYTE_UNITS,
    JOULE_UNITS,
    TIME_UNITS,
    best_unit,
    cell,
    number,
    ratio,
    ratio_span,
    span,
)
from analysis.display.ranking import (
    CROWDED,
    FASTEST,
    GROUP,
    MARK,
    NO_DIFFERENCE,
    SLOWER,
    TOO_FEW,
    contestants,
    marked,
)
from analysis.records.columns import RATIO_COLUMNS, STRENGTH
from analysis.records.reader import Campaign
from analysis.records.tables import read_table

# What tells a row of reference_ratios.csv from the others.
LOOP_OF = ["framework", "release", "network", "batch", "tier", "precision"]
# Column of trials.csv: heading and units.
TRAFFIC = {
    "payload_h2d_bytes_per_step": ("copied to the GPU", BYTE_UNITS),
    "payload_d2h_bytes_per_step": ("copied back", BYTE_UNITS),
    "pcie_rx_bytes_per_step": ("PCIe received", BYTE_UNITS),
    "pcie_tx_bytes_per_step": ("PCIe sent", BYTE_UNITS),
    "nvlink_bytes_per_step": ("NVLink sent", BYTE_UNITS),
    "energy_joules_per_step": ("energy", JOULE_UNITS),
}
CHECKS = {"gpm_ratio": "PCIe received: GPM / counters",
          "energy_counter_ratio": "energy: counter / power"}


def answer(trials: pd.DataFrame, speeds: pd.DataFrame,
           keys: Sequence[str] = tuple(GROUP)) -> pd.DataFrame:
    """Put the contestants side by side, a row a group of equal `keys`, with a verdict.

    `speeds` is what `ranking.relative` returns. Batches that their devices cannot share belong
    to no group; `refused` lists them. Without the tier among the keys, each time names its tier.
    `ranking.filled` gives the rows of tiers that equal another one.
    """
    trials = trials.assign(contestant=contestants(trials))
    order = list(dict.fromkeys(trials["contestant"]))
    unit, scale = best_unit(trials["step_seconds"], TIME_UNITS)
    shared = _shared(trials)
    trials = trials[shared] if shared.any() else trials
    lines = []
    for key, group in trials.groupby(list(keys), sort=False, dropna=False):
        cells = {f"{trial['contestant']} ({unit})": _time(trial, scale)
                 + ("" if "tuning" in keys else f", {trial['tuning']}")
                 for _, trial in group.iterrows()}
        own = speeds["trial"].isin(group["trial"])
        if "tuning" in keys:
            own &= speeds["tuning"] == group["tuning"].iloc[0]
        verdict = _verdict(speeds[own])
        lines.append({**dict(zip(keys, key, strict=True)), **cells, "verdict": verdict})
    columns = [*keys, *(f"{name} ({unit})" for name in order), "verdict"]
    return ranking.without_constants(pd.DataFrame(lines, columns=columns).fillna(""), trials)


def times(trials: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """List every measured trial with its time, rate, relative speed, loss and proof."""
    measured = trials["status"] == "ok"
    unit, scale = best_unit(trials.loc[measured, "step_seconds"], TIME_UNITS)
    has_peak = trials.loc[measured, "mfu"].notna().any()
    trains = trials.loc[measured, "loss_first"].notna().any() or not measured.any()
    speed = _speeds(speeds)
    return ranking.table(trials, lambda row: {
        f"time per {ranking.unit_of_work(trials)} ({unit})": number(row["step_seconds"] / scale),
        f"95 % interval ({unit})":
            span(row["step_seconds_low"] / scale, row["step_seconds_high"] / scale),
        "samples per second": number(row["samples_per_second"]),
        **({"share of the peak (%)": number(100 * row["mfu"])} if has_peak else {}),
        "relative speed": speed.get(row["trial"], "not ranked"),
        **({"loss, first to last": f"{number(row['loss_first'])} to {number(row['loss_last'])}"}
           if trains else {}),
        "processes x windows":
            f"{row['processes']} x {round(row['windows'] / row['processes'], 2):g}",
        "verified": row["verified"]}, measured)


def listing(trials: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """List the trials of each group below each other, the fastest first, for many contestants.

    What a group has in common is in its first row only.
    """
    unit, scale = best_unit(trials["step_seconds"], TIME_UNITS)
    speed = _speeds(speeds)
    table = trials.assign(contestant=marked(trials), ranked=trials["verified"] == "yes")
    lines: list[dict[str, Any]] = []
    for key, group in table.groupby(GROUP, sort=False, dropna=False):
        common = dict(zip(GROUP, key, strict=True))
        group = group.sort_values(["ranked", "step_seconds"], ascending=[False, True])
        for _, row in group.iterrows():
            lines.append({
                **common, "framework": row["contestant"], f"time ({unit})": _time(row, scale),
                "relative speed": speed.get(row["trial"], "not ranked")})
            common = dict.fromkeys(GROUP, "")
    return ranking.without_constants(pd.DataFrame(lines), trials)


def proof(trials: pd.DataFrame, processes: pd.DataFrame) -> pd.DataFrame:
    """List the smallest faults that each measured row's proof would have refused, and its cost.

    The largest error is that of all its processes, as a share of what was allowed. The cost is that
    of the longer one of a process's two proofs, the median over processes.
    """
    kept = (trials["status"] == "ok") & trials[list(STRENGTH)].notna().any(axis=1)
    first = processes["proof_seconds"] - processes["second_proof_seconds"]
    longer = np.maximum(first, processes["second_proof_seconds"])
    cost = (longer / processes["process_seconds"]).groupby(processes["trial"]).median().dropna()
    closest = processes.groupby("trial")["proof_limit_share"].max().dropna()
    return ranking.table(trials, lambda row: {
        "learning rate (%)": _seen_from(row["proof_rate_error"]),
        "scale of gradients (%)": _seen_from(row["proof_gradient_error"]),
        "frozen parameters (%)": number(100 * row["proof_frozen_share"]),
        **({"largest error (% of its limit)": number(100 * closest.get(row["trial"], np.nan))}
           if len(closest) else {}),
        **({"one proof (% of the process's time)": number(100 * cost.get(row["trial"], np.nan))}
           if len(cost) else {})}, kept)


def memory(trials: pd.DataFrame) -> pd.DataFrame:
    """List the peak memory of every trial that measured it, by the driver and by the framework."""
    kept = (trials["status"] == "ok") & trials[[HELD, COUNTED]].notna().any(axis=1)
    told = by_driver(trials[kept])
    on_gpus = told and trials.loc[kept, "device_kind"].eq("cuda").all()
    headings = {HELD: "held on the GPU"} if told else {}
    headings[COUNTED] = "counted by its allocator" if on_gpus else "peak memory"
    unit, scale = best_unit(trials.loc[kept, next(iter(headings))], BYTE_UNITS)
    sized = trials.assign(**{column: trials[column].astype(float) / scale for column in headings})
    return ranking.table(sized, lambda row: {
        f"{heading} ({unit})": number(row[column])
        for column, heading in headings.items()}, kept)


def loading(trials: pd.DataFrame) -> pd.DataFrame:
    """List the times of training from files, of the loader and of the step, and the verdict."""
    kept = (trials["status"] == "ok") & trials["from_files_seconds"].notna()
    unit, scale = best_unit(trials.loc[kept, "from_files_seconds"], TIME_UNITS)
    return ranking.table(trials, lambda row: {
        f"from files ({unit})": number(row["from_files_seconds"] / scale),
        f"loader alone ({unit})": number(row["loader_seconds"] / scale),
        f"step alone ({unit})": number(row["step_alone_seconds"] / scale),
        "from files / step": f"{row['from_files_seconds'] / row['step_alone_seconds']:.3g}",
        "verdict": row["bottleneck"],
        "pixels off (of 255)": number(row["pixel_error"])}, kept)


def loops(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """List the rows that took turns with a reference loop: both times, and the ratio of rates.

    Empty where the campaign has no reference_ratios.csv. Raises BadRecords.
    """
    known = {tuple(row[name] for name in LOOP_OF): row
             for row in read_table(campaign.folder / "reference_ratios.csv",
                                   RATIO_COLUMNS).to_dict("records")}

    def key(row: Any) -> tuple[Any, ...]:
        return tuple(row["tuning" if name == "tier" else name] for name in LOOP_OF)

    unit, scale = best_unit([row["seconds"] for row in known.values()], TIME_UNITS)

    def cells(row: "pd.Series[Any]") -> dict[str, str]:
        found = known[key(row)]
        low, high = found["ratio_low"], found["ratio_high"]
        return {f"loop ({unit})": number(found["loop_seconds"] / scale),
                f"row ({unit})": number(found["seconds"] / scale),
                "times as fast as its loop": ratio(found["ratio"], low, high)
                if low == low else number(found["ratio"]),
                "pairs": str(found["processes"]) if found["ratio"] == found["ratio"] else "",
                "verdict": "; ".join(filter(None, [found["verdict"], found["reason"]]))}

    return ranking.table(trials, cells, [key(row) in known for row in trials.to_dict("records")])


def traffic(trials: pd.DataFrame, checks: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """List bytes copied, bytes over the links and joules per mini-batch of every row that has any.

    `checks` is `cross_check.ratios` by trial. A link also carries headers and commands. Columns
    that are empty in all rows are left out.
    """
    known = trials.assign(framework=marked(trials))
    known = known[known[list(TRAFFIC)].notna().any(axis=1)]
    table = known[[*GROUP, "framework"]].copy()
    for column, (name, units) in TRAFFIC.items():
        unit, scale = best_unit(known[column], units)
        table[f"{name} ({unit})"] = (known[column] / scale).map(number)
    payload = known["payload_h2d_bytes_per_step"].replace(0, np.nan)
    table["PCIe received / copied"] = (known["pcie_rx_bytes_per_step"] / payload).map(number)
    throttled = known["throttled_windows"].astype("object")
    timed = known["windows"] + known["warm_up_windows"] * known["processes"]
    table["throttled windows"] = [
        f"{count} of {windows}" if count is not pd.NA else ""
        for count, windows in zip(throttled, timed, strict=True)]
    for check, heading in CHECKS.items():
        table[heading] = [number(checks.get(trial, {}).get(check)) for trial in known["trial"]]
    kept = [column for column in table if column in GROUP or (table[column] != "").any()]
    return ranking.without_constants(table[kept], trials)


def refused(trials: pd.DataFrame) -> pd.DataFrame:
    """List the trials that are not ranked, with their reasons."""
    kept = trials[(trials["status"] != "ok") | (trials["verified"] != "yes")]
    verdict = kept["status"].where(kept["status"] != "ok", "not verified")
    whole = kept["global_batch"].astype(str) + " over " + kept["devices"].astype(str)
    batch = kept["batch"].astype(object).where(_shared(kept), whole)
    table = kept[GROUP].assign(batch=batch, framework=marked(trials)[kept.index],
                               verdict=verdict, reason=kept["reason"])
    return ranking.without_constants(table, trials)


def remarks(trials: pd.DataFrame) -> pd.DataFrame:
    """List remarks on ranked trials: failed processes, missing intervals, looser comparisons.

    Those that all ranked rows share stand once, in a first line.
    """
    ranked = trials[trials["verified"] == "yes"]
    said = [str(reason).split("; ") for reason in ranked["reason"]]
    common = [text for text in said[0] if text and all(text in each for each in said)] \
        if len(said) > 1 else []
    table = ranked[GROUP].assign(framework=marked(trials)[ranked.index], remark=[
        "; ".join(text for text in texts if text not in common) for texts in said])
    table = table[table["remark"] != ""]
    if common:
        first = {column: "" for column in table} | {"network": "all ranked rows",
                                                    "remark": "; ".join(common)}
        table = pd.concat([pd.DataFrame([first]), table.astype(object)])
    return ranking.without_constants(table, trials)


def _shared(trials: pd.DataFrame) -> "pd.Series[bool]":
    """Say of each trial whether its devices share its batch evenly."""
    whole = trials["global_batch"]
    return whole.isna() | (trials["batch"] * trials["devices"] == whole)


def _time(trial: "pd.Series[Any]", scale: float) -> str:
    if trial["status"] != "ok":
        return str(trial["status"])
    verified = "" if trial["verified"] == "yes" else ", not verified"
    mark = f" {MARK}" if trial["caveat"] else ""
    same = f", = {trial['same']}" if trial.get("same") else ""
    return cell(trial, "step_seconds", scale) + verified + same + mark


def _seen_from(share: float) -> str:
    """Return a share in percent; one of 1 is a missing update, so more means that none shows."""
    return "not seen" if share >= 1 else number(100 * share)


def _verdict(speeds: pd.DataFrame) -> str:
    """Put a group's ranking into words; `speeds` is sorted from the fastest down."""
    if speeds.empty:
        return "none verified"
    names = speeds["contestant"].tolist()
    if len(names) == 1:
        return f"only {names[0]}"
    if CROWDED in set(speeds["verdict"]):
        return CROWDED
    equal = speeds[speeds["verdict"] == NO_DIFFERENCE]
    if len(equal):
        # How much they may differ: 2 % and a factor of 2 are not the same answer.
        ranges = [f"{ratio_span(1 / row['relative_speed_high'], 1 / row['relative_speed_low'])} "
                  f"times as fast as {row['contestant']}" for _, row in equal.iterrows()]
        return f"{NO_DIFFERENCE}: {names[0]} {', '.join(ranges)}"
    if TOO_FEW in set(speeds["verdict"]):
        return TOO_FEW
    value, low, high = speeds.iloc[1][ranking.SPEEDS]
    times = ratio(1 / value, 1 / high, 1 / low)
    return f"{names[0]} {times} times as fast as {names[1]}"


def _speeds(speeds: pd.DataFrame) -> dict[str, str]:
    """Return each ranked trial's relative speed in words."""
    words = {}
    for _, row in speeds.iterrows():
        text, verdict = cell(row, "relative_speed"), row["verdict"]
        known = {FASTEST: "1, the fastest", SLOWER: text, CROWDED: CROWDED}
        words[row["trial"]] = known.get(verdict, f"{text}, {verdict}")
    return words
