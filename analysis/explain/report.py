"""Writes a gap that was explained: explain.csv, its details, explain.md, explain.html (one file, light and dark) and the waterfall.

All of it is made from `analysis.explain.gap.Gap`; nothing is decided here.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.markup import escape
from rich.table import Table

from analysis.display import tables
from analysis.display.tables import TIME_UNITS, number
from analysis.explain import words
from analysis.explain.gap import Gap
from analysis.explain.waterfall import waterfall
from analysis.records.reader import Campaign
from analysis.report import report
from analysis.trials.breakdown import RESIDUAL


def write(gap: Gap, campaigns: list[Campaign], out: Path) -> list[Path]:
    """Write the explanation into the folder `out` and return every path, the page last. `campaigns` hold the two trials."""
    (out / "plots").mkdir(parents=True, exist_ok=True)
    figure = waterfall(gap)
    drawn = report.draw_svg(figure)
    gap.parts.to_csv(out / "explain.csv", index=False, lineterminator="\n")
    gap.details.to_csv(out / "explain_details.csv", index=False, lineterminator="\n")
    (out / "plots" / "explain.svg").write_text(drawn, encoding="utf-8")
    figure.savefig(out / "plots" / "explain.png", dpi=160)
    paths = [out / name for name in ("explain.csv", "explain_details.csv", "plots/explain.svg", "plots/explain.png")]
    for kind in ("md", "html"):
        environment = Environment(loader=FileSystemLoader(report.TEMPLATES), undefined=StrictUndefined, autoescape=kind == "html",
                                  trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(markdown=report.markdown, provenance=report.provenance, inline=report.inline)
        page = environment.get_template(f"explain.{kind}.j2").render(
            gap=gap, sentences=words.sentences(gap), parts=parts(gap), details=details(gap), phases=phases(gap),
            drawn=drawn, campaigns=campaigns)
        paths.append(out / f"explain.{kind}")
        paths[-1].write_text(page, encoding="utf-8")
    return paths


def terminal_table(gap: Gap) -> Table:
    """Make the table of the parts; `explain_words.sentences` belong below it."""
    shown = parts(gap)
    table = Table(title=f"A: {gap.a.name}, B: {gap.b.name}")
    for place, column in enumerate(shown.columns.astype(str)):
        table.add_column(column, justify="right" if place else "left", overflow="fold")
    for cells in shown.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in cells))
    return table


def parts(gap: Gap) -> pd.DataFrame:
    """Put each part of both steps and of their difference into a row, from the largest down, then the residual and the whole."""
    unit, scale = _unit(gap)
    whole = {"part": "step", "seconds_a": gap.a.step_seconds, "seconds_b": gap.b.step_seconds,
             "difference_seconds": gap.difference.value, "share": 1.0 if gap.difference.value else float("nan")}
    largest_first = gap.parts.sort_values("difference_seconds", key=abs, ascending=False)
    residual = largest_first["class"] == RESIDUAL
    rows: list[dict[Any, Any]] = [*pd.concat([largest_first[~residual], largest_first[residual]]).to_dict("records"), whole]
    return pd.DataFrame([{
        "part": row["part"], f"A ({unit})": number(row["seconds_a"] / scale), f"B ({unit})": number(row["seconds_b"] / scale),
        f"B less A ({unit})": _signed(row["difference_seconds"] / scale),
        "of the difference": "" if pd.isna(row["share"]) else f"{100 * row['share']:.1f} %",
    } for row in rows])


def details(gap: Gap) -> pd.DataFrame:
    """List products by arithmetic and transposition and copies by direction, with the time of each side."""
    unit, scale = _unit(gap)
    rows = gap.details
    told = rows[(rows[["arithmetic", "transposition", "activity"]] != "").any(axis=1)]
    return pd.DataFrame([{
        "class": row["class"], "arithmetic": row["arithmetic"], "transposition": row["transposition"],
        "direction": row["activity"], f"A ({unit})": number(row["seconds_a"] / scale),
        f"B ({unit})": number(row["seconds_b"] / scale), f"B less A ({unit})": _signed(row["difference_seconds"] / scale),
    } for row in told.to_dict("records")])


def phases(gap: Gap) -> pd.DataFrame:
    """List what each phase of the step adds to it on either side, with the interval of the difference."""
    unit, scale = _unit(gap)
    return pd.DataFrame([{
        "phase": row["phase"], f"A ({unit})": number(row["seconds_a"] / scale), f"B ({unit})": number(row["seconds_b"] / scale),
        f"B less A ({unit})": _signed(row["difference_seconds"] / scale),
        f"95 % interval ({unit})": tables.span(row["low"] / scale, row["high"] / scale),
    } for row in gap.phases.to_dict("records")])


def _unit(gap: Gap) -> tuple[str, float]:
    return tables.best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)
