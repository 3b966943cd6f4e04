"""A comparison of two sides, and what its rows mean in sentences.

Verdicts come from `analysis.compare.verdicts`; `analysis.compare.report` writes the page.
"""

from collections.abc import Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.compare import calls, rules, verdicts
from analysis.compare.rules import Rules
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, NOT_COMPARED, SLOWER, TOO_FEW, Side
from analysis.display import ranking
from analysis.display.numbers import ENDS, number, percent
from analysis.statistics.bootstrap import CONFIDENCE

ORDER = (SLOWER, FASTER, NO_DIFFERENCE, TOO_FEW, calls.TOO_FEW_CALLS, NOT_COMPARED)
FALSE = (FASTER, SLOWER)  # verdicts that are false alarms where both sides are the same


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
    def measured(self) -> pd.DataFrame:
        """A row for each ratio, as `calls.measures`, with what `rules.judge` says of it."""
        return rules.judge(calls.measures(self.rows), self.rules)

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The rows with their thresholds, their worst regressions and what is acknowledged."""
        return rules.worst(self.rows, self.measured)

    @property
    def same(self) -> bool:
        """Whether both sides are the same, so that every difference seen is a false alarm."""
        alike = self.a.campaign is self.b.campaign and _releases(self.a) == _releases(self.b)
        names = self.a.campaign.meta.get("comparison") or {}
        own = names.get("local") or names.get("wheels")
        return self.a.name == self.b.name or (alike and not own)


def _releases(side: Side) -> set[tuple[str, ...]]:
    return set(side.rows[["framework", "release", "tuning"]].itertuples(index=False, name=None))


def headline(comparison: Comparison) -> str:
    """Count the verdicts, of inference those of each quantile too."""
    rows = comparison.rows
    found = [_counted(rows["verdict"]) or "no workload"]
    found += [f"{name} of calls: {_counted(rows[f'{prefix}verdict'])}"
              for name, prefix in calls.prefixes(rows).items()
              if rows[f"{prefix}verdict"].notna().any()]
    return f"B against A: {'; '.join(found)}."


def _counted(column: "pd.Series[str]") -> str:
    counts = column.value_counts()
    return ", ".join(f"{counts[word]} {word}" for word in ORDER if word in counts)


def notes(comparison: Comparison) -> list[str]:
    """Say what the verdicts mean together: error rate, false alarms, regressions."""
    rows = comparison.rows
    each = comparison.measured[comparison.measured["repeat"] == rows["repeat"].min()]
    count = int((each["verdict"] != NOT_COMPARED).sum())
    said = []
    if count > 1:
        each_holds = percent(verdicts.family_confidence(count), ".4g")
        said.append(f"The {count} intervals hold together with {percent(CONFIDENCE)} confidence; "
                    f"each is a {each_holds} interval.")
    said.append(_false_alarms(rows) if comparison.same else _trust(comparison))
    return said + _regressions(comparison)


def remarks(comparison: Comparison) -> list[str]:
    """Return a note for each workload with a caveat, and for each whose losses differ."""
    rows = comparison.rows
    caveats = [f"{ranking.MARK} {label}: {caveat}."
               for label, caveat in zip(labels(rows), caveats_of(rows), strict=True) if caveat]
    compared = rows["verdict"] != NOT_COMPARED
    return caveats + [
        f"{label}: losses differ, although each side has its own proof: {losses}."
        for label, losses, shown in zip(labels(rows), rows["losses"], compared, strict=True)
        if shown and losses not in ("agree", "")]


def labels(rows: pd.DataFrame) -> list[str]:
    """Name each row by network, batch and what else varies; name two strategies that differ."""
    columns = [*verdicts.WORKLOAD[2:], *verdicts.CONTESTANT, *verdicts.SEVERAL]
    varying = [column for column in columns if column in rows and rows[column].nunique() > 1]
    return [", ".join(filter(None, [
        f"{row['network']}, batch {row['batch']}",
        *(ranking.one_setting(column, row[column]) for column in varying), _strategies(row)]))
        for _, row in rows.iterrows()]


def measure_labels(rows: pd.DataFrame, measured: pd.DataFrame) -> list[str]:
    """Name each row of `calls.measures` of `rows`."""
    names = dict(zip(rows.index, labels(rows), strict=True))
    return [names[index] + f", {measure}" * bool(measure)
            for index, measure in measured["measure"].items()]


def _strategies(row: "pd.Series[Any]") -> str:
    named = {side: row[f"strategy_{side.lower()}"] for side in ("A", "B")}
    apart = len({name for name in named.values() if name and pd.notna(name)}) > 1
    return ", ".join(f"{name} in {side}" for side, name in named.items()) if apart else ""


def caveats_of(rows: pd.DataFrame) -> list[str]:
    """Return the caveat of each row, "" without one."""
    return rows["caveat"].fillna("").tolist() if "caveat" in rows else [""] * len(rows)


def _false_alarms(rows: pd.DataFrame) -> str:
    wrong = alarms(rows)
    seen = rows["visible"].dropna()
    gave = f"{wrong.sum()} of {len(wrong)} comparisons gave one" if len(wrong) > 1 else \
        f"this comparison gave {'one' if wrong.any() else 'none'}"
    least = f"This machine sees differences from {share(seen.median())} (median of workloads)." \
        if len(seen) else "There is no interval, so the comparison says nothing of this machine."
    return (f"Both sides are the same, so any difference seen is a false alarm: {gave}; "
            f"{100 * (1 - CONFIDENCE):.0f} % of comparisons would by chance. {least}")


def _trust(comparison: Comparison) -> str:
    """Say how often a comparison is a false alarm, and which difference it could have shown."""
    seen = comparison.rows["visible"].dropna()
    least = "There is no interval, so no difference is visible."
    if len(seen):
        most = f" to {share(seen.max())}, by workload" if len(seen) > 1 else ""
        least = f"The smallest visible difference is {share(seen.min())}{most}."
    chance = f"by chance {100 * (1 - CONFIDENCE):.0f} % of comparisons of equal sides give one"
    known = comparison.calibration
    if known is None:
        return (f"False alarms: {chance}. No calibration of this machine was "
                f"given (`--calibration DIR`). {least}")
    wrong = alarms(known.rows)
    return (f"False alarms: {chance}. On this machine {wrong.sum()} of {len(wrong)} comparisons of "
            f"{known.a.name} with itself did. {least}")


def alarms(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return for each repeat whether a difference was seen."""
    measured = calls.measures(rows)
    return measured["verdict"].isin(FALSE).groupby(measured["repeat"]).any()


def _regressions(comparison: Comparison) -> list[str]:
    """Say which regressions are shown, known and possible, if there is a threshold."""
    rows = comparison.measured
    rows = rows.assign(label=measure_labels(comparison.rows, rows))
    limits = rows["threshold"].dropna().unique()
    if not len(limits):
        return []
    # One threshold is named once, several with each row.
    limit = share(limits[0]) if len(limits) == 1 else "its threshold"
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
    return f", beyond {share(row['threshold'])}" if len(limits) > 1 else ""


def ratio_text(row: "pd.Series[Any]", column: str = "ratio") -> str:
    """Write a ratio of a row with its interval."""
    value, low, high = (row[f"{column}{end}"] for end in ENDS)
    if pd.isna(value):
        return ""
    return f"{value:.3f}" + ("" if pd.isna(low) else f" ({low:.3f} to {high:.3f})")


def share(part: float) -> str:
    """Write a difference in percent, with two digits."""
    return percent(part, ".2g" if part < 1 else ".0f")
