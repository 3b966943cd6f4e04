"""Compares two sides workload by workload: the ratio of their times, its interval, a verdict.

A side is one half of a live comparison (trials with `side` A or B in one campaign) or a recorded
campaign. A row is compared only if both sides are verified. Losses that differ are a remark where
each process has its own proof; in older campaigns such a row is not compared. Intervals are
simultaneous (Bonferroni): with 95 % confidence none of a comparison's verdicts is a false alarm, so
each one's own confidence is 1 - 0.05 / verdicts. docs/method/statistics.md argues it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.compare import calls, memory
from analysis.display.memory import HELD
from analysis.display.ranking import ACROSS_TIERS, NO_DIFFERENCE, SLOWER, TOO_FEW
from analysis.proof import sameness
from analysis.records.reader import Campaign, infers
from analysis.records.text import BadRecords
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Times
from analysis.trials import summary

WORKLOAD = ACROSS_TIERS
# These belong to the workload where a side has several.
CONTESTANT = ["framework", "tuning"]
SEVERAL = ["strategy", "global_batch"]
FASTER, NOT_COMPARED = "faster", "not compared"
# Why a row is not compared: B trains something else, a side failed, is in doubt, or has no such
# workload.
DIFFERENT, FAILED, DOUBTFUL, ABSENT = "different", "failed", "doubtful", "absent"
OF_A_SIDE = ["trial", "strategy", "step_seconds", "processes", "peak_memory_bytes", HELD,
             "framework", "release"]
# Of calls only where a side has them.
OF_CALLS = [f"{prefix}seconds" for prefix in calls.PREFIXES.values()]
COLUMNS = [
    *WORKLOAD, *CONTESTANT, "repeat", "trial_a", "trial_b", "ratio", "ratio_low", "ratio_high",
    "visible", "verdict", "reason", "step_seconds_a", "step_seconds_b", "processes_a",
    "processes_b", "peak_memory_bytes_a", "peak_memory_bytes_b", "losses", "strategy_a",
    "strategy_b", "framework_a", "framework_b", "release_a", "release_b", "refusal",
]
CHECKS = ["check", "check_reason", "loss_error", "gradient_error", "trajectory_error"]


class NotComparable(BadRecords):
    """Two campaigns that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True)
class Side:
    """One side: its name, its records, and its own rows of `summary.summarise`."""

    name: str
    campaign: Campaign
    rows: pd.DataFrame


def sides_of(campaign: Campaign) -> tuple[Side, Side]:
    """Take a live comparison apart into its sides. Raises NotComparable for other campaigns."""
    names = campaign.meta.get("comparison")
    if not names:
        raise NotComparable(f"{campaign.folder}: holds one campaign, not a comparison; "
                            "name two campaigns, or two releases")
    rows = summary.summarise(campaign)
    a, b = (Side(names[side], campaign, rows[rows["side"] == side.upper()]) for side in "ab")
    return a, b


def recorded(campaign: Campaign) -> Side:
    """Make a side of a whole recorded campaign, by the name that its folder has now."""
    return Side(campaign.folder.resolve().name, campaign, summary.summarise(campaign))


def repeats_of(campaign: Campaign) -> list[Campaign]:
    """Cut a calibration into its repeated comparisons, by process number; others stay whole."""
    count = (campaign.meta.get("comparison") or {}).get("repeats", 1)
    if count == 1:
        return [campaign]
    own = campaign.meta["suite"]["processes"]
    each = own // count
    # Each node of a joined campaign has its own numbers, `stride` apart.
    nodes = len(campaign.joined["nodes"]) if campaign.joined else 1
    starts = [node * campaign.joined.get("stride", own) for node in range(nodes)]
    trials = [{**trial, "processes_planned": each * nodes} for trial in campaign.trials]
    planned = replace(campaign, meta={**campaign.meta, "trials": trials})
    return [_processes(planned, [start + number for start in starts
                                 for number in range(first, first + each)])
            for first in range(0, count * each, each)]


def compare(a: Side, b: Side) -> pd.DataFrame:
    """Compare every workload of either side; ratios are time of B over time of A.

    Columns are `COLUMNS`. Raises NotComparable if a side measured one workload several times.
    """
    _refuse_other_modes(a, b)
    keys = _keys(a.rows, b.rows)
    (ours, spare_a), (theirs, spare_b) = (
        _by_workload(side.name, side.rows, keys) for side in (a, b))
    rows = [_pair(dict(zip(keys, key, strict=True)), (a, ours.get(key)), (b, theirs.get(key)))
            for key in {**ours, **theirs}]
    rows += [_refused(letter, row, keys) for letter, spare in (("a", spare_a), ("b", spare_b))
             for row in spare]
    of_calls = "inference" in {*a.rows["mode"], *b.rows["mode"]}
    _judge([row for row in rows if not row["verdict"]], a.campaign, b.campaign, of_calls)
    columns = [*COLUMNS, *(key for key in keys if key not in COLUMNS),
               *(["caveat"] if any("caveat" in row for row in rows) else []), *memory.COLUMNS,
               *(calls.COLUMNS if of_calls else [])]
    table = pd.DataFrame(rows, columns=columns).assign(repeat=0)
    whole = ["processes_a", "processes_b", *memory.COLUMNS[:2]]
    table = table.astype(dict.fromkeys(whole, "Int64"))
    # Comparisons on CPUs, and those of earlier releases, keep the columns that they had.
    untold = table[[*memory.COLUMNS[:2]]].isna().all(axis=None)
    return table.drop(columns=[*memory.COLUMNS]) if untold else table


def refuse_twice(names: Mapping[str, str], planned: Sequence[Mapping[str, Any]]) -> None:
    """Raise NotComparable if a side would measure a workload twice; `names` are by side.

    `planned` trials are as in campaign.json.
    """
    rows = {side: pd.DataFrame([trial for trial in planned if trial["side"] == side],
                               columns=list(planned[0])) for side in names}
    keys = _keys(*rows.values())
    for side, name in names.items():
        _by_workload(name, rows[side], keys)


def family_confidence(count: int) -> float:
    """Return each interval's confidence, so that all hold together with `bootstrap.CONFIDENCE`."""
    return 1 - (1 - bootstrap.CONFIDENCE) / max(count, 1)


def verdict(ratio: bootstrap.Estimate) -> str:
    """Put a ratio of B's time to A's into a word about B."""
    if not ratio.has_interval:
        return TOO_FEW
    return NO_DIFFERENCE if ratio.contains(1.0) else SLOWER if ratio.low > 1 else FASTER


def visible(ratio: bootstrap.Estimate) -> float:
    """Return the smallest difference, as a share, that an interval of this width would show."""
    if not ratio.has_interval:
        return float("nan")
    return max(ratio.value / ratio.low, ratio.high / ratio.value) - 1


def _judge(rows: Sequence[dict[str, Any]], a: Campaign, b: Campaign, of_calls: bool) -> None:
    """Add ratios and verdicts to rows that may be compared, with `of_calls` those of calls too."""
    a, b = (summary.without_diverged(each) for each in (a, b))
    measured = [_times(row, a, b, of_calls) for row in rows]
    confidence = family_confidence(sum(map(len, measured)))
    for row, pairs in zip(rows, measured, strict=True):
        for prefix, (ours, theirs) in pairs.items():
            found = bootstrap.ratio(theirs, ours, confidence=confidence)
            own = {**found.columns("ratio"), "visible": visible(found), "verdict": verdict(found)}
            row |= {prefix + name: value for name, value in own.items()}
        held = [side.ok_rows("processes", row[f"trial_{letter}"])[HELD].dropna().tolist()
                for letter, side in (("a", a), ("b", b))]
        row[memory.VERDICT] = memory.verdict(held[0], held[1], 1 - confidence)


def _times(row: dict[str, Any], a: Campaign, b: Campaign, of_calls: bool
           ) -> dict[str, tuple[list[Times], list[Times]]]:
    """Return both sides' times per step or call and, by prefix, their quantiles of calls.

    A quantile that too few calls show gets its verdict here.
    """
    sides = (a, row["trial_a"]), (b, row["trial_b"])
    found = {"": (summary.times_of(*sides[0]), summary.times_of(*sides[1]))}
    if not of_calls:
        return found
    ours, theirs = (calls.of_processes(*side) for side in sides)
    for name, prefix in calls.PREFIXES.items():
        if ours[name] and theirs[name]:
            found[prefix] = ours[name], theirs[name]
        else:
            row[f"{prefix}verdict"] = calls.TOO_FEW_CALLS
    return found


def _refuse_other_modes(a: Side, b: Side) -> None:
    """Raise NotComparable if one campaign trains and the other runs trained networks."""
    modes = [" and ".join(side.rows["mode"].unique()) for side in (a, b)]
    if modes[0] != modes[1] and all(modes):
        raise NotComparable(f"{a.name} measured {modes[0]} and {b.name} {modes[1]}: a ratio would "
                            "compare a training step with a call; name two of one mode")


def refuse_other_hardware(a: Side, b: Side) -> None:
    """Raise NotComparable if the campaigns were measured on different hardware."""
    ours, theirs = (_hardware(side.campaign.meta["machine"]) for side in (a, b))
    found = [f"{name}: {ours[name]} and {theirs[name]}"
             for name in ours if ours[name] != theirs[name]]
    if found:
        raise NotComparable(
            f"{a.name} and {b.name} were measured on different hardware ({'; '.join(found)}): "
            "a ratio would compare the machines; pass --across-machines to do so")


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    cpu, gpus = machine.get("cpu") or {}, machine.get("gpus") or ()
    return {"processor": cpu.get("model"), "cores": cpu.get("allowed") or cpu.get("logical"),
            "GPUs": ", ".join(str(gpu.get("name")) for gpu in gpus) or "none",
            "driver": ", ".join(sorted({str(gpu.get("driver")) for gpu in gpus})) or "none"}


def _processes(campaign: Campaign, chosen: Sequence[int]) -> Campaign:
    """Keep some processes of a campaign; the first takes a check that was made once for all."""
    processes = campaign.processes
    first = processes[processes["process"] == 0].set_index("trial")[CHECKS]
    kept = processes[processes["process"].isin(chosen)].sort_values(["trial", "process"]).copy()
    opens = kept["process"] == chosen[0]
    for column in () if campaign.proves_each_process else CHECKS:
        kept.loc[opens, column] = kept.loc[opens, "trial"].map(first[column])
    windows = campaign.windows[campaign.windows["process"].isin(chosen)]
    return replace(campaign, processes=kept, windows=windows)


def _keys(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """Return the columns that tell workloads apart: of framework, tuning, strategy where several.

    The global batch tells apart what does not divide into the devices: 62 and 63 over 2 are both
    batch 31.
    """
    def several(column: str) -> bool:
        return any(rows.loc[rows[column] != "", column].nunique() > 1 for rows in (a, b))

    undivided = any((rows["batch"] * rows["devices"] != rows["global_batch"]).any()
                    for rows in (a, b))
    return [*WORKLOAD, *filter(several, [*CONTESTANT, "strategy"]),
            *(["global_batch"] if undivided else [])]


def _by_workload(name: str, rows: pd.DataFrame,
                 keys: Sequence[str]) -> tuple[dict[tuple[Any, ...], Any], list[Any]]:
    """Return a side's row of each workload, and spare unsupported rows of the same workloads."""
    found: dict[tuple[Any, ...], Any] = {}
    spare = []
    for _, row in rows.iterrows():
        key = tuple(row[list(keys)])
        first = found.setdefault(key, row)
        if first is row:
            continue
        if row["status"] == "unsupported":
            spare.append(row)
        elif first["status"] == "unsupported":
            found[key] = row
            spare.append(first)
        else:
            remedy = "it is a live comparison, which holds both sides: name its folder alone" \
                if first["side"] != row["side"] else \
                "compare one release of each framework at a time"
            raise NotComparable(f"{name}: {row['network']}, batch {row['batch']} is there twice "
                                f"({first['trial']}, {row['trial']}): {remedy}")
    return found, spare


def _refused(letter: str, found: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Make the row of a spare unsupported trial."""
    reason = f"{letter.upper()}: {found['trial']}: {found['status']}: {found['reason']}"
    own = {f"{column}_{letter}": found[column]
           for column in ("trial", "strategy", "framework", "release")}
    return {**found[list(keys)], **own, "verdict": NOT_COMPARED, "reason": reason, "losses": "",
            "refusal": ABSENT}


def _pair(workload: dict[str, Any], a: tuple[Side, Any], b: tuple[Side, Any]) -> dict[str, Any]:
    """Put both sides of a workload into a row; `verdict` stays empty if they may be compared."""
    row = {**workload, "verdict": "", "reason": "", "losses": "", "refusal": ""}
    present = {letter: found for letter, (_, found) in (("a", a), ("b", b)) if found is not None}
    for letter, found in present.items():
        row |= {f"{column}_{letter}": found[column] for column in (*OF_A_SIDE, *OF_CALLS)}
    caveats = [f"{letter.upper()}: {found['caveat']}" for letter, found in present.items()
               if found["caveat"]]
    row |= {"caveat": "; ".join(caveats)} if caveats else {}
    doubts = [*_doubts("A", *a), *_doubts("B", *b)]
    if all(len({found[key] for found in present.values()}) > 1 for key in CONTESTANT):
        doubts.append((ABSENT, f"A is {a[1]['tuning']} and B is {b[1]['tuning']}: "
                       "two frameworks compare within a tier only"))
    kinds, reasons = {kind for kind, _ in doubts}, [reason for _, reason in doubts]
    if row.get("processes_a") and row.get("processes_b"):
        unlike = sameness.unlike(row["strategy_a"], row["strategy_b"])
        row["losses"] = "" if unlike else _losses(a[0].campaign, b[0].campaign, row)
        proven = all(side.campaign.proves_each_process for side, _ in (a, b))
        if unlike or (row["losses"] != "agree" and not proven):
            reasons = reasons or [unlike or row["losses"]]
            kinds.add(ABSENT if unlike else DIFFERENT)
    if _is_different(*b) and not _is_different(*a):
        kinds.add(DIFFERENT)
    refusal = next((kind for kind in (DIFFERENT, FAILED, DOUBTFUL, ABSENT) if kind in kinds), "")
    return row | ({"verdict": NOT_COMPARED, "reason": "; ".join(reasons), "refusal": refusal}
                  if reasons else {})


def _doubts(letter: str, side: Side, found: Any) -> list[tuple[str, str]]:
    """Return (refusal, reason) where a side has no workload, or none that may be compared."""
    if found is None:
        return [(ABSENT, f"{letter}: {side.name} has no such workload")]
    if found["status"] == "ok" and found["verified"] == "yes":
        return []
    state = "not verified" if found["status"] == "ok" else found["status"]
    kind = {"ok": DOUBTFUL, "failed": FAILED}.get(found["status"], ABSENT)
    return [(kind, f"{letter}: {state}: {found['reason']}")]


def _is_different(side: Side, found: Any) -> bool:
    """Return whether the proof says that a side trains something else."""
    if found is None:
        return False
    checks = side.campaign.rows("processes", found["trial"])["check"]
    return bool((checks == DIFFERENT).any())


def _losses(a: Campaign, b: Campaign, row: Mapping[str, Any]) -> str:
    """Return `agree`, or how the losses of both sides differ.

    It is "" where dropout makes them, and of trained networks, which have none.
    """
    sides = ((a, row["trial_a"]), (b, row["trial_b"]))
    ours, theirs = (next(trial for trial in campaign.trials if trial["trial"] == name)
                    for campaign, name in sides)
    if a.proves_each_process and b.proves_each_process and (
            infers(ours) or ours.get("dropout") or theirs.get("dropout")):
        return ""
    curves = [sameness.loss_curve(*side) for side in sides]
    apart = sameness.disagreement(curves[0], curves[1], ours, theirs)
    if not apart:
        return "agree"
    seeds = [campaign.meta["suite"].get("seed") for campaign in (a, b)]
    return apart if seeds[0] == seeds[1] else \
        f"{apart} (weights and batches of seeds {seeds[0]} and {seeds[1]})"
