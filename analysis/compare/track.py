"""The timeline of a framework's releases: each against one base, and where one became slower.

A folder holds one live comparison a release, each of the base (A) with that release (B). Two
releases are compared by their ratios to the base that ran beside each, so a machine that changed in
between cancels. Intervals of all changes hold together (Bonferroni).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from packaging.version import InvalidVersion, Version

from analysis.compare import calls, plot, verdicts
from analysis.compare.comparison import measure_labels, ratio_text
from analysis.compare.verdicts import NOT_COMPARED, SLOWER, NotComparable
from analysis.display import page, provenance
from analysis.display.page import Page, Section, Text, tabled
from analysis.records import reader
from analysis.records.reader import Campaign, infers
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Estimate, Times
from analysis.trials import summary

COLUMNS = ["workload", "release", "ratio", "ratio_low", "ratio_high", "before", "change",
           "change_low", "change_high", "verdict", "reason"]
HOW_TO_READ = (
    "The ratio is a release's time per {unit} over that of the base. {calls}The change compares a "
    "release with the one before it. Its interval resamples processes, and all such intervals hold "
    "together with 95 % confidence. A release is slower if its whole interval lies above 1.")
OF_CALLS = (
    "p50 and p99 have timelines of their own: a process's median call, and the time that 1 % of "
    "its calls exceed. ")

Pair = tuple[list[Times], list[Times]]  # the times of a release, and of the base beside it


@dataclass(frozen=True)
class Timeline:
    """The base, and a row for each workload and release, in the order of releases."""

    base: str
    rows: pd.DataFrame
    campaigns: Sequence[Campaign]
    absent: Sequence[str] = ()  # releases that could not be measured, with their reasons

    @property
    def regressions(self) -> pd.DataFrame:
        """The rows that are slower than the release before."""
        return self.rows[self.rows["verdict"] == SLOWER]


def read(folder: Path, absent: Sequence[str] = ()) -> Timeline:
    """Read the comparisons in `folder`. Raises NotComparable for none, or for several bases."""
    campaigns = [reader.read(path.parent) for path in sorted(folder.glob("*/campaign.json"))]
    pairs = [(campaign, *verdicts.sides_of(campaign)) for campaign in campaigns]
    bases = sorted({a.name for _, a, _ in pairs})
    if len(bases) != 1:
        raise NotComparable(f"{folder}: holds comparisons with {' and '.join(bases) or 'no base'}; "
                            "a timeline has one base")
    found = [verdicts.compare(a, b).assign(campaign=number)
             for number, (_, a, b) in enumerate(pairs)]
    table = pd.concat(found, ignore_index=True)
    measured = pd.concat([calls.measures(table), _too_few_calls(table)])
    measured["workload"] = measure_labels(table, measured)
    first = next((release for release in table["release_a"] if pd.notna(release)), bases[0])
    rows = [_history(str(workload), group, str(first), campaigns)
            for workload, group in measured.groupby("workload", sort=False)]
    return Timeline(bases[0], _with_changes(rows), campaigns, absent)


def write(timeline: Timeline, out: Path) -> list[Path]:
    """Write track.csv, track.md, track.html and the plot; return every path, the page last."""
    timeline.rows.to_csv(out / "track.csv", index=False, lineterminator="\n")
    return [out / "track.csv", *page.write(_page(timeline), out, "track")]


def headline(timeline: Timeline) -> str:
    """Name the regressions."""
    listed = "; ".join(
        f"{row['release']} in {row['workload']}, {ratio_text(row, 'change')} times as long "
        f"as {row['before']}" for _, row in timeline.regressions.iterrows())
    count = timeline.rows["release"].nunique()
    said = f"Slower: {listed}." if listed else f"No release of {count} is shown to be slower."
    refused = int((timeline.rows["verdict"] == NOT_COMPARED).sum())
    return said + (f" {refused} of {len(timeline.rows)} rows could not be compared."
                   if refused else "")


def order(release: str) -> tuple[bool, Version | str]:
    """Return what releases are sorted by; those that are no versions come last."""
    try:
        return False, Version(release)
    except InvalidVersion:
        return True, release


def _history(workload: str, group: pd.DataFrame, base: str, campaigns: Sequence[Campaign]
             ) -> list[dict[str, Any]]:
    """Return a workload's releases in their order, each with its times and those of the base."""
    rows = [{"workload": workload, "release": base, "ratio": 1.0, "pair": None, "verdict": "",
             "reason": ""}]
    for _, row in group.iterrows():
        measured = row["verdict"] != NOT_COMPARED
        campaign = summary.without_diverged(campaigns[row["campaign"]])
        rows.append({
            **{key: row[key] for key in ("workload", "ratio", "ratio_low", "ratio_high")},
            "release": _release(row, campaigns[row["campaign"]]),
            "verdict": "" if measured else NOT_COMPARED, "reason": row["reason"],
            "pair": tuple(_times(campaign, row[f"trial_{side}"], row["measure"]) for side in "ba")
            if measured else None})
    return sorted(rows, key=lambda row: order(str(row["release"])))


def _too_few_calls(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row, as `calls.measures`, for each quantile that too few calls show."""
    found = [table[table[f"{prefix}verdict"] == calls.TOO_FEW_CALLS].assign(
        measure=name, verdict=NOT_COMPARED, reason=calls.TOO_FEW_CALLS,
        **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), float("nan")))
        for name, prefix in calls.prefixes(table).items()]
    return pd.concat(found) if found else table.iloc[:0].assign(measure="")


def _times(campaign: Campaign, trial: str, measure: str) -> list[Times]:
    """Return a trial's times per step or call, or one quantile of its calls, by process."""
    if measure:
        return calls.of_processes(campaign, trial)[measure]
    return summary.times_of(campaign, trial)


def _release(row: "pd.Series[Any]", campaign: Campaign) -> str:
    """Return B's release, also where B has no such workload."""
    if pd.notna(row["release_b"]):
        return str(row["release_b"])
    return str(next(trial["release"] for trial in campaign.trials if trial["side"] == "B"))


def _with_changes(histories: Sequence[list[dict[str, Any]]]) -> pd.DataFrame:
    """Compare each release with the last one before it that was measured."""
    steps = []
    for history in histories:
        measured = [row for row in history if row["verdict"] != NOT_COMPARED]
        steps += list(zip(measured[1:], measured, strict=False))
    confidence = verdicts.family_confidence(len(steps))
    for row, before in steps:
        found = _change(row["pair"], before["pair"], confidence)
        row |= {"before": before["release"], **found.columns("change"),
                "verdict": verdicts.verdict(found)}
    return pd.DataFrame([row for history in histories for row in history], columns=COLUMNS)


def _change(new: Pair | None, old: Pair | None, confidence: float) -> Estimate:
    """Estimate a release's time over that of the one before; the base has no pair."""
    if new and old:
        return bootstrap.step(new, old, confidence=confidence)
    times, base = new or reversed(old or ([], []))
    return bootstrap.ratio(times, base, confidence=confidence)


def _is_of_calls(timeline: Timeline) -> bool:
    return any(infers(trial) for campaign in timeline.campaigns for trial in campaign.trials)


def _page(timeline: Timeline) -> Page:
    rows, meta, of_calls = timeline.rows, timeline.campaigns[-1].meta, _is_of_calls(timeline)
    unit = "call" if of_calls else "mini-batch"
    releases = sorted(rows["release"].unique(), key=order)
    table = pd.DataFrame({
        "workload": rows["workload"], "release": rows["release"],
        "time / base": [ratio_text(row, "ratio") for _, row in rows.iterrows()],
        "time / release before": [ratio_text(row, "change") for _, row in rows.iterrows()],
        "verdict": rows["verdict"]})
    refused = rows.loc[rows["verdict"] == NOT_COMPARED, ["workload", "release", "reason"]]
    return Page(f"{timeline.base.partition('==')[0]} from {releases[0]} to {releases[-1]}", [
        Text(f"{headline(timeline)} The base is {timeline.base}."),
        *(Text(each) for each in timeline.absent),
        page.Figure("track", partial(plot.timeline, rows, releases, timeline.base, unit)),
        page.Table(table),
        *tabled("Not compared, and why", refused),
        Section("How to read it", [
            Text(HOW_TO_READ.format(unit=unit, calls=OF_CALLS * of_calls))]),
        Section("Where the numbers come from",
                [*provenance.concerns(meta), page.Facts(provenance.facts(meta))]),
    ])
