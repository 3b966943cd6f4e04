"""Writes what a comparison found: compare.csv, compare.md, compare.html (one file, light and dark), a plot, a terminal table.

All of it is made from records; nothing is decided here. Verdicts come from `analysis.compare.verdicts`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from analysis.compare import plot, verdicts
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, NOT_COMPARED, SLOWER, TOO_FEW, Side
from analysis.display import tables
from analysis.report import report
from analysis.statistics import bootstrap

ORDER = (SLOWER, FASTER, NO_DIFFERENCE, TOO_FEW, NOT_COMPARED)


@dataclass(frozen=True)
class Comparison:
    """What is shown: the rows of all repeats, the sides as they are called, the threshold, and where both were measured."""

    rows: pd.DataFrame
    a: Side
    b: Side
    threshold: float | None = None
    repeats: int = 1

    @property
    def same(self) -> bool:
        """Whether both sides are the same, so that every difference seen is a false alarm."""
        return self.a.name == self.b.name


def write(comparison: Comparison, out: Path) -> list[Path]:
    """Write the comparison into the folder `out` and return every path. Raises OSError."""
    (out / "plots").mkdir(parents=True, exist_ok=True)
    paths = [out / "compare.csv"]
    comparison.rows.to_csv(paths[0], index=False, lineterminator="\n")
    figures = _figures(comparison)
    for name, figure in figures.items():
        for kind in ("svg", "png"):
            paths.append(out / "plots" / f"{name}.{kind}")
            if kind == "svg":
                paths[-1].write_text(report.draw_svg(figure), encoding="utf-8")
            else:
                figure.savefig(paths[-1], dpi=160)
    for kind in ("md", "html"):
        environment = Environment(loader=FileSystemLoader(report.TEMPLATES), undefined=StrictUndefined, autoescape=kind == "html",
                                  trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(markdown=report.markdown, provenance=report.provenance, inline=report.inline)
        page = environment.get_template(f"compare.{kind}.j2").render(
            comparison=comparison, headline=headline(comparison), answer=answer(comparison), refused=refused(comparison),
            notes=notes(comparison), figures={name: report.draw_svg(figure) for name, figure in figures.items()},
            campaigns=list({str(side.campaign.folder): side.campaign for side in (comparison.a, comparison.b)}.values()))
        paths.append(out / f"compare.{kind}")
        paths[-1].write_text(page, encoding="utf-8")
    return paths


def terminal_table(comparison: Comparison) -> Table:
    """Make the table that ends a comparison; `lines` belong below it."""
    shown = answer(comparison)
    table = Table(title=f"A: {comparison.a.name}, B: {comparison.b.name}")
    for column in shown.columns.astype(str):
        table.add_column(column, justify="right" if column == "batch" else "left", overflow="fold")
    for cells in shown.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in cells))
    return table


def lines(comparison: Comparison) -> list[str]:
    """Say in lines what stands below the table: the counts, the notes, and what could not be compared, and why."""
    reasons = [f"Not compared: {row['workload']}: {row['reason']}" for row in refused(comparison).to_dict("records")]
    return [headline(comparison), *notes(comparison), *reasons]


def headline(comparison: Comparison) -> str:
    """Count the verdicts."""
    counts = comparison.rows["verdict"].value_counts()
    found = ", ".join(f"{counts[word]} {word}" for word in ORDER if word in counts)
    return f"B against A: {found or 'no workload'}."


def answer(comparison: Comparison) -> pd.DataFrame:
    """Put both sides, their ratio and the verdict into a row for each workload; of a calibration, the worst of its repeats."""
    rows = comparison.rows
    if comparison.repeats > 1:
        return _calibration(comparison)
    unit, scale = tables.best_unit([*rows["step_seconds_a"], *rows["step_seconds_b"]], tables.TIME_UNITS)
    memory, size = tables.best_unit([*rows["peak_memory_bytes_a"], *rows["peak_memory_bytes_b"]], tables.BYTE_UNITS)
    return pd.DataFrame([{
        "workload": label,
        f"A ({unit})": tables.number(row["step_seconds_a"] / scale), f"B ({unit})": tables.number(row["step_seconds_b"] / scale),
        "time of B / A": _ratio(row), "verdict": verdict(row),
        f"memory A, B ({memory})": ", ".join(filter(None, [tables.number(row["peak_memory_bytes_a"] / size),
                                                           tables.number(row["peak_memory_bytes_b"] / size)])),
        "losses": "agree" if row["losses"] == "agree" else "differ" if row["losses"] else "",
    } for label, (_, row) in zip(labels(rows), rows.iterrows(), strict=True)])


def verdict(row: "pd.Series[Any]") -> str:
    """Write a verdict with what the row could have shown."""
    word: str = row["verdict"]
    return f"{word}, could have seen {_percent(row['visible'])}" if word == NO_DIFFERENCE else word


def refused(comparison: Comparison) -> pd.DataFrame:
    """List the workloads that were not compared, with their reasons."""
    kept = comparison.rows["verdict"] == NOT_COMPARED
    names = [label for label, keep in zip(labels(comparison.rows), kept, strict=True) if keep]
    return pd.DataFrame({"workload": names, "reason": comparison.rows.loc[kept, "reason"].tolist()})


def notes(comparison: Comparison) -> list[str]:
    """Say what the verdicts mean together: the family's error rate, a calibration's answer, and regressions against a threshold."""
    rows = comparison.rows
    each = rows[rows["repeat"] == rows["repeat"].min()]
    count = int((each["verdict"] != NOT_COMPARED).sum())
    said = [f"All {count} intervals hold together with {100 * bootstrap.CONFIDENCE:.0f} %: each is one of "
            f"{100 * verdicts.family_confidence(count):.4g} %."] if count > 1 else []
    if comparison.same:
        said.append(_false_alarms(comparison))
    if comparison.threshold is not None:
        said.extend(_regressions(rows, comparison.threshold))
    return said


def labels(rows: pd.DataFrame) -> list[str]:
    """Name each row's workload by its network, its batch, whatever else varies, and two strategies that stand in one row."""
    varying = [column for column in (*verdicts.WORKLOAD[2:], *verdicts.CONTESTANT, *verdicts.SEVERAL)
               if column in rows and rows[column].nunique() > 1]
    return [", ".join(filter(None, [f"{row['network']}, batch {row['batch']}", *(_part(column, row[column]) for column in varying),
                                    _strategies(row)])) for _, row in rows.iterrows()]


def _part(column: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if column == "devices":
        return f"{value} device{'s' if value > 1 else ''}"
    return f"global batch {value}" if column == "global_batch" else f"{value} threads" if column == "threads" else str(value)


def _strategies(row: "pd.Series[Any]") -> str:
    named = {side: row[f"strategy_{side.lower()}"] for side in ("A", "B")}
    apart = len({name for name in named.values() if name and pd.notna(name)}) > 1
    return ", ".join(f"{name} in {side}" for side, name in named.items()) if apart else ""


def _calibration(comparison: Comparison) -> pd.DataFrame:
    rows = comparison.rows.assign(workload=labels(comparison.rows))
    return pd.DataFrame([{
        "workload": workload, "comparisons": len(group),
        "false alarms": int(group["verdict"].isin([FASTER, SLOWER]).sum()),
        "smallest visible difference": _percent(group["visible"].median()),
        "from best to worst": f"{_percent(group['visible'].min())} to {_percent(group['visible'].max())}",
        "ratios": tables.span(group["ratio"].min(), group["ratio"].max()),
    } for workload, group in rows.groupby("workload", sort=False)])


def _false_alarms(comparison: Comparison) -> str:
    rows = comparison.rows
    wrong = rows["verdict"].isin([FASTER, SLOWER]).groupby(rows["repeat"]).any()
    seen = rows["visible"].dropna()
    least = f"this machine sees differences from {_percent(seen.median())} on (median of its workloads)" if len(seen) else \
        "no interval, so nothing was learned"
    gave = f"{wrong.sum()} of {len(wrong)} comparisons gave one" if len(wrong) > 1 else \
        f"this comparison gave {'one' if wrong.any() else 'none'}"
    return (f"Both sides are the same, so each difference seen is a false alarm: {gave}, "
            f"{100 * (1 - bootstrap.CONFIDENCE):.0f} % of comparisons would; {least}.")


def _regressions(rows: pd.DataFrame, threshold: float) -> list[str]:
    shown, hidden = verdicts.regressions(rows, threshold)
    limit = _percent(threshold)
    names = dict(zip(rows.index, labels(rows), strict=True))
    listed = "; ".join(f"{names[index]} ({_ratio(row)})" for index, row in shown.iterrows())
    said = [f"Regression beyond {limit} shown: {listed}." if listed else f"No regression beyond {limit} is shown."]
    if len(hidden):
        said.append(f"One beyond {limit} could not have been seen, or cannot be excluded: " + "; ".join(
            f"{names[index]} ({'no interval' if pd.isna(row['ratio_high']) else 'up to ' + tables.number(row['ratio_high'])})"
            for index, row in hidden.iterrows()) + ". More processes would tell.")
    return said


def _figures(comparison: Comparison) -> dict[str, Figure]:
    rows = comparison.rows
    if not rows["ratio_low"].notna().any():
        return {}
    names = labels(rows)
    if comparison.repeats > 1:
        names = [f"{name}, #{repeat + 1}" for name, repeat in zip(names, rows["repeat"], strict=True)]
    return {"ratios": plot.ratios(rows, names, (comparison.a.name, comparison.b.name), comparison.threshold)}


def _ratio(row: "pd.Series[Any]") -> str:
    value, low, high = (float(row[column]) for column in ("ratio", "ratio_low", "ratio_high"))
    if pd.isna(value):
        return ""
    return f"{value:.3f}" + ("" if pd.isna(low) else f" ({low:.3f} to {high:.3f})")


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
