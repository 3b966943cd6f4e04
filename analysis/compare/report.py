"""Writes what a comparison found: compare.html, compare.md, compare.csv, a plot, a terminal table.

All of it is made from records; verdicts come from `analysis.compare.verdicts`.
"""

import math
from collections.abc import Sized
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from analysis.compare import plot, rules, verdicts
from analysis.compare.rules import Rules
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, NOT_COMPARED, SLOWER, TOO_FEW, Side
from analysis.display import page, provenance, ranking, terminal
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, best_unit, number, percent, span
from analysis.display.page import Page, Section, Text, tabled
from analysis.statistics.bootstrap import CONFIDENCE
from analysis.trials import effort

ORDER = (SLOWER, FASTER, NO_DIFFERENCE, TOO_FEW, NOT_COMPARED)
FALSE = (FASTER, SLOWER)  # verdicts that are false alarms where both sides are the same
HOW_TO_READ = (
    "The ratio is B's time per mini-batch over A's: above 1, B is slower. An interval that "
    "contains 1 shows no difference. The smallest visible difference is the one that this "
    "interval would have excluded. Memory is the peak while training. A workload is compared only "
    "if both sides were proved to train the same network.")


@dataclass(frozen=True)
class Comparison:
    """The rows of all repeats, the two sides, and what counts as a regression.

    `calibration` is an earlier comparison of a release with itself on this machine.
    """

    rows: pd.DataFrame
    a: Side
    b: Side
    rules: Rules = field(default_factory=Rules)
    repeats: int = 1
    calibration: "Comparison | None" = None

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The rows with their thresholds, regressions and what is acknowledged."""
        return rules.judge(self.rows, self.rules)

    @property
    def same(self) -> bool:
        """Whether both sides are the same, so that every difference seen is a false alarm."""
        alike = self.a.campaign is self.b.campaign and _releases(self.a) == _releases(self.b)
        names = self.a.campaign.meta.get("comparison") or {}
        own = names.get("local") or names.get("wheels")
        return self.a.name == self.b.name or (alike and not own)


def _releases(side: Side) -> set[tuple[str, ...]]:
    return set(side.rows[["framework", "release", "tuning"]].itertuples(index=False, name=None))


def write(comparison: Comparison, out: Path) -> list[Path]:
    """Write the comparison into the folder `out` and return every path. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    comparison.rows.to_csv(out / "compare.csv", index=False, lineterminator="\n")
    return [out / "compare.csv", *page.write(_page(comparison), out, "compare")]


def terminal_table(comparison: Comparison) -> Table:
    """Make the table that ends a comparison; `lines` belong below it."""
    title = f"A: {comparison.a.name}, B: {comparison.b.name}"
    return terminal.table(answer(comparison), title)


def lines(comparison: Comparison) -> list[str]:
    """Return the lines below the table: counts, notes, and what was not compared and why."""
    reasons = [f"Not compared: {row['workload']}: {row['reason']}"
               for row in refused(comparison).to_dict("records")]
    return [headline(comparison), *notes(comparison), *remarks(comparison), *reasons]


def headline(comparison: Comparison) -> str:
    """Count the verdicts."""
    counts = comparison.rows["verdict"].value_counts()
    found = ", ".join(f"{counts[word]} {word}" for word in ORDER if word in counts)
    return f"B against A: {found or 'no workload'}."


def answer(comparison: Comparison) -> pd.DataFrame:
    """List both sides, their ratio and the verdict of each workload; a calibration's false alarms.
    """
    rows = comparison.judged
    if comparison.repeats > 1:
        return _calibration(comparison)
    unit, scale = best_unit([*rows["step_seconds_a"], *rows["step_seconds_b"]], TIME_UNITS)
    memory = rows[["peak_memory_bytes_a", "peak_memory_bytes_b"]].astype("Float64").to_numpy(
        float, na_value=math.nan)
    size_unit, size = best_unit(memory.ravel(), BYTE_UNITS)
    return pd.DataFrame({
        "workload": [label + f" {ranking.MARK}" * bool(caveat)
                     for label, caveat in zip(labels(rows), _caveats(rows), strict=True)],
        f"A ({unit})": (rows["step_seconds_a"] / scale).map(number),
        f"B ({unit})": (rows["step_seconds_b"] / scale).map(number),
        "time of B / A": [ratio_text(row) for _, row in rows.iterrows()],
        "verdict": [verdict(row) for _, row in rows.iterrows()],
        f"memory A, B ({size_unit})": [", ".join(filter(None, map(number, pair)))
                                       for pair in memory / size],
        "losses": rows["losses"].where(rows["losses"].isin(["agree", ""]), "differ"),
    })


def remarks(comparison: Comparison) -> list[str]:
    """Return a note for each workload with a caveat, and for each whose losses differ."""
    rows = comparison.rows
    caveats = [f"{ranking.MARK} {label}: {caveat}."
               for label, caveat in zip(labels(rows), _caveats(rows), strict=True) if caveat]
    compared = rows["verdict"] != NOT_COMPARED
    return caveats + [
        f"{label}: losses differ, although each side has its own proof: {losses}."
        for label, losses, shown in zip(labels(rows), rows["losses"], compared, strict=True)
        if shown and losses not in ("agree", "")]


def _caveats(rows: pd.DataFrame) -> list[str]:
    return rows["caveat"].fillna("").tolist() if "caveat" in rows else [""] * len(rows)


def verdict(row: "pd.Series[Any]") -> str:
    """Write a verdict with what the row could have shown."""
    word = str(row["verdict"])
    if row.get("acknowledged"):
        return f"{word}, acknowledged"
    return f"{word}, could have seen {_share(row['visible'])}" if word == NO_DIFFERENCE else word


def refused(comparison: Comparison) -> pd.DataFrame:
    """List the workloads that were not compared, with their reasons."""
    rows = comparison.rows.assign(workload=labels(comparison.rows))
    return rows.loc[rows["verdict"] == NOT_COMPARED, ["workload", "reason"]]


def notes(comparison: Comparison) -> list[str]:
    """Say what the verdicts mean together: error rate, false alarms, regressions."""
    rows = comparison.rows
    each = rows[rows["repeat"] == rows["repeat"].min()]
    count = int((each["verdict"] != NOT_COMPARED).sum())
    said = []
    if count > 1:
        each_holds = percent(verdicts.family_confidence(count), ".4g")
        said.append(f"The {count} intervals hold together with {percent(CONFIDENCE)} confidence; "
                    f"each is a {each_holds} interval.")
    said.append(_false_alarms(rows) if comparison.same else _trust(comparison))
    return said + _regressions(comparison)


def labels(rows: pd.DataFrame) -> list[str]:
    """Name each row by network, batch and what else varies; name two strategies that differ."""
    columns = [*verdicts.WORKLOAD[2:], *verdicts.CONTESTANT, *verdicts.SEVERAL]
    varying = [column for column in columns if column in rows and rows[column].nunique() > 1]
    return [", ".join(filter(None, [
        f"{row['network']}, batch {row['batch']}",
        *(ranking.one_setting(column, row[column]) for column in varying), _strategies(row)]))
        for _, row in rows.iterrows()]


def _page(comparison: Comparison) -> Page:
    a, b = comparison.a, comparison.b
    campaigns = {str(side.campaign.folder): side.campaign.meta for side in (a, b)}
    return Page(f"{b.name} against {a.name}", [
        Text(f"A is {a.name}, B is {b.name}. {headline(comparison)}"),
        page.Table(answer(comparison)),
        *(Text(remark) for side in dict.fromkeys((a.campaign, b.campaign))
          for remark in effort.remarks(side)),
        *(Text(note) for note in (*notes(comparison), *remarks(comparison))),
        *_figures(comparison),
        *tabled("Not compared, and why", refused(comparison)),
        Section("How to read it", [Text(HOW_TO_READ)]),
        *(Section(f"Where the numbers of {meta['name']} come from",
                  [*provenance.concerns(meta), *provenance.parts(meta)])
          for meta in campaigns.values()),
    ])


def _strategies(row: "pd.Series[Any]") -> str:
    named = {side: row[f"strategy_{side.lower()}"] for side in ("A", "B")}
    apart = len({name for name in named.values() if name and pd.notna(name)}) > 1
    return ", ".join(f"{name} in {side}" for side, name in named.items()) if apart else ""


def _calibration(comparison: Comparison) -> pd.DataFrame:
    rows = comparison.rows.assign(workload=labels(comparison.rows))
    return pd.DataFrame([{
        "workload": workload, "comparisons": len(group),
        "false alarms": int(group["verdict"].isin(FALSE).sum()),
        "smallest visible difference": _share(group["visible"].median()),
        "from best to worst":
            f"{_share(group['visible'].min())} to {_share(group['visible'].max())}",
        "ratios": span(group["ratio"].min(), group["ratio"].max()),
    } for workload, group in rows.groupby("workload", sort=False)])


def _false_alarms(rows: pd.DataFrame) -> str:
    wrong = alarms(rows)
    seen = rows["visible"].dropna()
    gave = f"{wrong.sum()} of {len(wrong)} comparisons gave one" if len(wrong) > 1 else \
        f"this comparison gave {'one' if wrong.any() else 'none'}"
    least = f"This machine sees differences from {_share(seen.median())} (median of workloads)." \
        if len(seen) else "There is no interval, so the comparison says nothing of this machine."
    return (f"Both sides are the same, so any difference seen is a false alarm: {gave}; "
            f"{100 * (1 - CONFIDENCE):.0f} % of comparisons would by chance. {least}")


def _trust(comparison: Comparison) -> str:
    """Say how often a comparison is a false alarm, and which difference it could have shown."""
    seen = comparison.rows["visible"].dropna()
    least = "There is no interval, so no difference is visible."
    if len(seen):
        most = f" to {_share(seen.max())}, by workload" if len(seen) > 1 else ""
        least = f"The smallest visible difference is {_share(seen.min())}{most}."
    chance = f"by chance {100 * (1 - CONFIDENCE):.0f} % of comparisons of equal sides give one"
    known = comparison.calibration
    if known is None:
        return (f"False alarms: {chance}. No calibration of this machine was "
                f"given (`--calibration DIR`). {least}")
    wrong = alarms(known.rows)
    return (f"False alarms: {chance}. On this machine {wrong.sum()} of {len(wrong)} comparisons of "
            f"{known.a.name} with itself did. {least}")


def alarms(rows: pd.DataFrame) -> "pd.Series[bool]":
    return rows["verdict"].isin(FALSE).groupby(rows["repeat"]).any()


def _regressions(comparison: Comparison) -> list[str]:
    """Say which regressions are shown, known and possible, if there is a threshold."""
    rows = comparison.judged.assign(label=labels(comparison.rows))
    limits = rows["threshold"].dropna().unique()
    if not len(limits):
        return []
    # One threshold is named once, several with each row.
    limit = _share(limits[0]) if len(limits) == 1 else "its threshold"
    shown = rows[rows["regression"] == rules.SHOWN]
    known = shown["acknowledged"] != ""
    listed = "; ".join(f"{row['label']} ({ratio_text(row)}{_beyond(row, limits)})"
                       for _, row in shown[~known].iterrows())
    said = [f"Regression beyond {limit}: {listed}." if listed
            else f"No {'further ' if known.any() else ''}regression beyond {limit} is shown."]
    said += [f"Acknowledged regression: {row['label']} ({ratio_text(row)}): {row['acknowledged']}."
             for _, row in shown[known].iterrows()]
    said += [f"No longer acknowledged: {each.framework} {each.network}: {each.text}."
             for each in rules.expired(shown, comparison.rules)]
    hidden = rows[rows["regression"] == rules.POSSIBLE]
    if len(hidden):
        uncertain = "; ".join(
            f"{row['label']} ({_highest(row['ratio_high'])}{_beyond(row, limits)})"
            for _, row in hidden.iterrows())
        said.append(f"A regression beyond {limit} cannot be excluded: {uncertain}. "
                    "More processes would narrow the intervals.")
    return said


def _highest(high: float) -> str:
    return "no interval" if pd.isna(high) else f"up to {number(high)}"


def _beyond(row: "pd.Series[Any]", limits: Sized) -> str:
    return f", beyond {_share(row['threshold'])}" if len(limits) > 1 else ""


def _figures(comparison: Comparison) -> list[page.Figure]:
    rows = comparison.judged
    if not rows["ratio_low"].notna().any():
        return []
    names = labels(rows)
    if comparison.repeats > 1:
        names = [f"{name}, #{repeat + 1}"
                 for name, repeat in zip(names, rows["repeat"], strict=True)]
    sides = comparison.a.name, comparison.b.name
    draw = partial(plot.ratios, rows, names, sides)
    return [page.Figure("ratios", draw)]


def ratio_text(row: "pd.Series[Any]", column: str = "ratio") -> str:
    """Write a ratio of a row with its interval."""
    value, low, high = (row[f"{column}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return ""
    return f"{value:.3f}" + ("" if pd.isna(low) else f" ({low:.3f} to {high:.3f})")


def _share(share: float) -> str:
    return percent(share, ".2g" if share < 1 else ".0f")
