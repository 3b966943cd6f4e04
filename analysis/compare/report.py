"""Writes what a comparison found: compare.html, compare.md, compare.csv, a plot, a terminal table.

All of it is made from records; `analysis.compare.comparison` puts it into sentences.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from analysis.compare import calls, memory, plot
from analysis.compare.comparison import (
    FALSE,
    Comparison,
    caveats_of,
    headline,
    labels,
    measure_labels,
    notes,
    ratio_text,
    remarks,
    share,
)
from analysis.compare.verdicts import NO_DIFFERENCE, NOT_COMPARED
from analysis.display import page, provenance, ranking, terminal
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.display.page import Page, Section, Text, tabled
from analysis.trials import effort

HOW_TO_READ = (
    "The ratio is B's time per mini-batch over A's: above 1, B is slower. An interval that "
    "contains 1 shows no difference. The smallest visible difference is the one that this "
    "interval would have excluded. {memory} A workload is compared only if both sides were proved "
    "to train the same network.")


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


def answer(comparison: Comparison) -> pd.DataFrame:
    """List both sides, their ratio and the verdict of each workload; a calibration's false alarms.
    """
    rows = comparison.judged
    if comparison.repeats > 1:
        return _calibration(comparison)
    unit, scale = best_unit([*rows["step_seconds_a"], *rows["step_seconds_b"]], TIME_UNITS)
    heading, sizes = memory.column(rows, rows["verdict"] != NOT_COMPARED)
    whole = comparison.measured[comparison.measured["measure"] == ""]
    losses = rows["losses"].where(rows["losses"].isin(["agree", ""]), "differ")
    return pd.DataFrame({
        "workload": [label + f" {ranking.MARK}" * bool(caveat)
                     for label, caveat in zip(labels(rows), caveats_of(rows), strict=True)],
        f"A ({unit})": (rows["step_seconds_a"] / scale).map(number),
        f"B ({unit})": (rows["step_seconds_b"] / scale).map(number),
        "time of B / A": [ratio_text(row) for _, row in rows.iterrows()],
        "verdict": [verdict(row) for _, row in whole.iterrows()],
        **{f"{name} of B / A": [_of_calls(row, prefix) for _, row in rows.iterrows()]
           for name, prefix in calls.prefixes(rows).items()},
        heading: sizes,
        **({} if calls.prefixes(rows) else {"losses": losses}),
    })


def verdict(row: "pd.Series[Any]") -> str:
    """Write a verdict with what the row could have shown."""
    word = str(row["verdict"])
    if row.get("acknowledged"):
        return f"{word}, acknowledged"
    return _with_visible(word, row["visible"])


def _of_calls(row: "pd.Series[Any]", prefix: str) -> str:
    """Write a quantile's ratio and verdict; nothing where the row is not compared."""
    word = row[f"{prefix}verdict"]
    told = [] if pd.isna(word) else [_with_visible(word, row[f"{prefix}visible"])]
    return ": ".join(filter(None, [ratio_text(row, f"{prefix}ratio"), *told]))


def _with_visible(word: str, visible: float) -> str:
    return f"{word}, could have seen {share(visible)}" if word == NO_DIFFERENCE else word


def refused(comparison: Comparison) -> pd.DataFrame:
    """List the workloads that were not compared, with their reasons."""
    rows = comparison.rows.assign(workload=labels(comparison.rows))
    return rows.loc[rows["verdict"] == NOT_COMPARED, ["workload", "reason"]]


def _page(comparison: Comparison) -> Page:
    a, b = comparison.a, comparison.b
    sizes = memory.note(comparison.rows, comparison.rows["verdict"] != NOT_COMPARED)
    how_to_read = calls.HOW_TO_READ if calls.prefixes(comparison.rows) else HOW_TO_READ
    campaigns = {str(side.campaign.folder): side.campaign.meta for side in (a, b)}
    return Page(f"{b.name} against {a.name}", [
        Text(f"A is {a.name}, B is {b.name}. {headline(comparison)}"),
        page.Table(answer(comparison)),
        *(Text(remark) for side in dict.fromkeys((a.campaign, b.campaign))
          for remark in effort.remarks(side)),
        *(Text(note) for note in (*notes(comparison), *remarks(comparison))),
        *_figures(comparison),
        *tabled("Not compared, and why", refused(comparison)),
        Section("How to read it", [Text(how_to_read.format(memory=sizes))]),
        *(Section(f"Where the numbers of {meta['name']} come from",
                  [*provenance.concerns(meta), *provenance.parts(meta)])
          for meta in campaigns.values()),
    ])


def _calibration(comparison: Comparison) -> pd.DataFrame:
    rows = comparison.measured
    rows = rows.assign(workload=measure_labels(comparison.rows, rows))
    return pd.DataFrame([{
        "workload": workload, "comparisons": len(group),
        "false alarms": int(group["verdict"].isin(FALSE).sum()),
        "smallest visible difference": share(group["visible"].dropna().median()),
        "from best to worst":
            f"{share(group['visible'].min())} to {share(group['visible'].max())}",
        "ratios": span(group["ratio"].min(), group["ratio"].max()),
    } for workload, group in rows.groupby("workload", sort=False)])


def _figures(comparison: Comparison) -> list[page.Figure]:
    rows = comparison.measured
    if not rows["ratio_low"].notna().any():
        return []
    names = measure_labels(comparison.rows, rows)
    if comparison.repeats > 1:
        names = [f"{name}, #{repeat + 1}"
                 for name, repeat in zip(names, rows["repeat"], strict=True)]
    sides = comparison.a.name, comparison.b.name
    draw = partial(plot.ratios, rows, names, sides)
    return [page.Figure("ratios", draw)]
