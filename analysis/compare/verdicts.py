"""Compares two sides workload by workload: the ratio of their times with its interval, and what it shows.

A side is one half of a live comparison (trials with `side` A or B in one campaign) or a recorded campaign. A row is compared only
where both sides are verified and their losses agree. Intervals are simultaneous: with 95 % none of a comparison's rows is a false
alarm (Bonferroni), so each row's own confidence is 1 - 0.05 / rows. docs/method/statistics.md argues it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.proof import sameness
from analysis.records.reader import BadRecords, Campaign
from analysis.statistics import bootstrap
from analysis.trials import summary

WORKLOAD = ["network", "batch", "devices", "device_kind", "threads", "precision", "data"]
CONTESTANT = ["framework", "tuning"]  # belong to the workload where a side has several
SEVERAL = ["strategy", "global_batch"]  # of several devices: columns only where they tell workloads apart
FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW, NOT_COMPARED = (
    "faster", "slower", "no difference seen", "too few processes to tell", "not compared")
OF_A_SIDE = ["trial", "strategy", "step_seconds", "processes", "peak_memory_bytes"]
COLUMNS = [
    *WORKLOAD, *CONTESTANT, "repeat", "trial_a", "trial_b", "ratio", "ratio_low", "ratio_high", "visible", "verdict", "reason",
    "step_seconds_a", "step_seconds_b", "processes_a", "processes_b", "peak_memory_bytes_a", "peak_memory_bytes_b", "losses",
    "strategy_a", "strategy_b",
]


class NotComparable(BadRecords):
    """Two campaigns that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True)
class Side:
    """One side: its records, the rows of them that are its own, and how to call it."""

    name: str
    campaign: Campaign
    rows: pd.DataFrame  # of `trials.summarise`


def sides_of(campaign: Campaign) -> tuple[Side, Side]:
    """Take a live comparison apart into its sides. Raises NotComparable where the campaign is none."""
    names = campaign.meta.get("comparison")
    if not names:
        raise NotComparable(f"{campaign.folder}: holds one campaign, not a comparison; name two campaigns, or two releases")
    rows = summary.summarise(campaign)
    a, b = (Side(names[side], campaign, rows[rows["side"] == side.upper()]) for side in ("a", "b"))
    return a, b


def recorded(campaign: Campaign) -> Side:
    """Make a side of a whole recorded campaign."""
    return Side(campaign.meta["name"], campaign, summary.summarise(campaign))


def repeats_of(campaign: Campaign) -> list[Campaign]:
    """Cut a calibration into its repeated comparisons, by process number; a comparison without repeats is its own only one."""
    comparison = campaign.meta.get("comparison") or {}
    count = comparison.get("repeats", 1)
    if count == 1:
        return [campaign]
    each = campaign.meta["suite"]["processes"] // count
    planned = {**campaign.meta, "trials": [{**trial, "processes_planned": each} for trial in campaign.trials]}
    return [_processes(replace(campaign, meta=planned), range(number * each, (number + 1) * each)) for number in range(count)]


def compare(a: Side, b: Side) -> pd.DataFrame:
    """Compare every workload of either side: `COLUMNS`, ratios as time of B over time of A (above 1, B is slower).

    Raises NotComparable where one workload was measured several times on one side.
    """
    keys = _keys(a.rows, b.rows)
    (ours, spare), (theirs, other_spare) = (_by_workload(side.name, side.rows, keys) for side in (a, b))
    rows = [{"repeat": 0} | _pair(dict(zip(keys, key, strict=True)), (a, ours.get(key)), (b, theirs.get(key)))
            for key in {**ours, **theirs}]
    rows += [{"repeat": 0} | _refused(letter, row, keys) for letter, found in (("a", spare), ("b", other_spare)) for row in found]
    count = sum(row["verdict"] == "" for row in rows)
    for row in rows:
        if not row["verdict"]:
            row |= _ratio(a.campaign, b.campaign, row, family_confidence(count))
    columns = [*COLUMNS, *(key for key in keys if key not in COLUMNS)]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("processes_a", "processes_b"), "Int64"))


def refuse_twice(names: Mapping[str, str], planned: Sequence[Mapping[str, Any]]) -> None:
    """Raise NotComparable where planned trials (as campaign.json has them) would stand twice on a side; `names` are by side."""
    rows = {side: pd.DataFrame([trial for trial in planned if trial["side"] == side], columns=list(planned[0])) for side in names}
    keys = _keys(*rows.values())
    for side, name in names.items():
        _by_workload(name, rows[side], keys)


def family_confidence(rows: int) -> float:
    """Return each row's confidence, so that all rows hold together with `statistics.CONFIDENCE`."""
    return 1 - (1 - bootstrap.CONFIDENCE) / max(rows, 1)


def verdict(ratio: bootstrap.Estimate) -> str:
    """Put a ratio of B's time to A's into a word about B."""
    if not ratio.has_interval:
        return TOO_FEW
    if ratio.contains(1.0):
        return NO_DIFFERENCE
    return SLOWER if ratio.low > 1 else FASTER


def visible(ratio: bootstrap.Estimate) -> float:
    """Return the smallest difference that the interval's width lets be seen, as a share: a ratio so far from 1 excludes 1."""
    return max(ratio.value / ratio.low, ratio.high / ratio.value) - 1 if ratio.has_interval else float("nan")


def regressions(rows: pd.DataFrame, threshold: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows whose slow-down is shown to exceed `threshold`, and those where one might hide.

    It is shown where the whole interval lies beyond, and may hide wherever the interval reaches beyond, or is missing.
    """
    shown = rows["ratio_low"] > 1 + threshold
    return rows[shown], rows[~shown & ~(rows["ratio_high"] <= 1 + threshold)]


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Say in which hardware two machines (as campaign.json describes them) differ; empty where times may be compared."""
    found = []
    for name, ours, theirs in ((name, read(a), read(b)) for name, read in HARDWARE.items()):
        if ours != theirs:
            found.append(f"{name}: {ours} and {theirs}")
    return found


def refuse_other_hardware(a: Side, b: Side) -> None:
    """Raise NotComparable where the campaigns were measured on different hardware, or on data drawn from different seeds."""
    found = differences(a.campaign.meta["machine"], b.campaign.meta["machine"])
    if found:
        raise NotComparable(f"{a.name} and {b.name} were measured on different hardware ({'; '.join(found)}): "
                            "a ratio would compare the machines; pass --across-machines where that is meant")


HARDWARE = {
    "processor": lambda machine: machine.get("cpu", {}).get("model"),
    "cores": lambda machine: machine.get("cpu", {}).get("allowed") or machine.get("cpu", {}).get("logical"),
    "GPUs": lambda machine: ", ".join(str(gpu.get("name")) for gpu in machine.get("gpus") or ()) or "none",
    "driver": lambda machine: ", ".join(sorted({str(gpu.get("driver")) for gpu in machine.get("gpus") or ()})) or "none",
}


def _processes(campaign: Campaign, chosen: range) -> Campaign:
    """Keep some processes of a campaign. The check, made once for all, stands with the first of them."""
    processes = campaign.processes.sort_values(["trial", "process"]).copy()
    checks = ["check", "check_reason", "loss_error", "gradient_error", "trajectory_error"]
    first = processes[processes["process"] == 0].set_index("trial")[checks]
    kept = processes[processes["process"].isin(chosen)].copy()
    opens = kept["process"] == chosen.start
    for column in checks:
        kept.loc[opens, column] = kept.loc[opens, "trial"].map(first[column])
    return replace(campaign, processes=kept, windows=campaign.windows[campaign.windows["process"].isin(chosen)])


def _keys(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """What tells workloads apart: also the framework, tuning or strategy, where a side has several of them.

    The global batch tells apart what does not divide into the devices: 62 and 63 over 2 are both batch 31.
    """
    several = [column for column in CONTESTANT if max(a[column].nunique(), b[column].nunique()) > 1]
    strategies = [rows.loc[rows["strategy"] != "", "strategy"].nunique() for rows in (a, b)]
    undivided = any((rows["batch"] * rows["devices"] != rows["global_batch"]).any() for rows in (a, b))
    return [*WORKLOAD, *several, *(["strategy"] if max(strategies) > 1 else []), *(["global_batch"] if undivided else [])]


def _by_workload(name: str, rows: pd.DataFrame,
                 keys: Sequence[str]) -> tuple[dict[tuple[Any, ...], "pd.Series[Any]"], list["pd.Series[Any]"]]:
    """Return a side's row of each workload, and the unsupported rows of workloads that have another one."""
    found: dict[tuple[Any, ...], pd.Series[Any]] = {}
    spare = []
    for _, row in rows.iterrows():
        key = tuple(row[list(keys)])
        first = found.get(key)
        if first is None:
            found[key] = row
        elif row["status"] == "unsupported":
            spare.append(row)
        elif first["status"] == "unsupported":
            found[key] = row
            spare.append(first)
        else:
            raise NotComparable(f"{name}: {row['network']}, batch {row['batch']} stands there twice ({first['trial']}, "
                                f"{row['trial']}): {_remedy(first, row)}")
    return found, spare


def _remedy(a: "pd.Series[Any]", b: "pd.Series[Any]") -> str:
    if a["side"] != b["side"]:
        return "it is a live comparison, which holds both sides: name its folder alone"
    return "compare one release of each framework at a time"


def _refused(letter: str, found: "pd.Series[Any]", keys: Sequence[str]) -> dict[str, Any]:
    """Make a row of what a side was asked for besides another row of the same workload, and refused."""
    row = {key: found[key] for key in keys} | {f"{column}_{letter}": found[column] for column in ("trial", "strategy")}
    reason = f"{letter.upper()}: {found['trial']}: {found['status']}: {found['reason']}"
    return row | {"verdict": NOT_COMPARED, "reason": reason, "losses": ""}


def _pair(workload: dict[str, Any], a: tuple[Side, "pd.Series[Any] | None"],
          b: tuple[Side, "pd.Series[Any] | None"]) -> dict[str, Any]:
    """Put both sides of a workload beside each other; `verdict` stays empty where they may be compared."""
    row: dict[str, Any] = {**workload, "verdict": "", "reason": "", "losses": ""}
    reasons = []
    for letter, (side, found) in (("a", a), ("b", b)):
        if found is None:
            reasons.append(f"{letter.upper()}: {side.name} has no such workload")
            continue
        row |= {f"{column}_{letter}": found[column] for column in OF_A_SIDE}
        if found["status"] != "ok" or found["verified"] != "yes":
            state = "not verified" if found["status"] == "ok" else found["status"]
            reasons.append(f"{letter.upper()}: {state}: {found['reason']}")
    if "trial_a" in row and "trial_b" in row and row["processes_a"] and row["processes_b"]:
        unlike = sameness.unlike(row["strategy_a"], row["strategy_b"])
        row["losses"] = "" if unlike else _losses(a[0].campaign, b[0].campaign, row)
        if row["losses"] != "agree" and not reasons:
            reasons.append(unlike or row["losses"])
    return row | ({"verdict": NOT_COMPARED, "reason": "; ".join(reasons)} if reasons else {})


def _losses(a: Campaign, b: Campaign, row: Mapping[str, Any]) -> str:
    names = (row["trial_a"], row["trial_b"])
    both = [trial for campaign, name in zip((a, b), names, strict=True) for trial in campaign.trials if trial["trial"] == name]
    apart = sameness.disagreement(sameness.loss_curve(a, names[0]), sameness.loss_curve(b, names[1]), *both)
    if not apart:
        return "agree"
    seeds = [campaign.meta["suite"].get("seed") for campaign in (a, b)]
    return apart if seeds[0] == seeds[1] else f"{apart} (weights and batches of seeds {seeds[0]} and {seeds[1]})"


def _ratio(a: Campaign, b: Campaign, row: Mapping[str, Any], confidence: float) -> dict[str, Any]:
    a, b = summary.without_diverged(a), summary.without_diverged(b)
    found = bootstrap.ratio(summary.times_of(b, row["trial_b"]), summary.times_of(a, row["trial_a"]), confidence=confidence)
    return {"ratio": found.value, "ratio_low": found.low, "ratio_high": found.high, "visible": visible(found),
            "verdict": verdict(found)}
