"""Writes a study's page, tables and plots, and their hashes.

Each study's own module decides what the page shows. The source of the numbers is the same for all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.display import page, provenance
from analysis.records import manifest, packed, study_reader
from analysis.records.study_reader import Records

PASSES = {"forward": "forward", "forward_backward": "forward and backward"}
RAW = ("measurements.csv", "points.csv", "study.json")
# How a study of a library stands to the tiers of the frameworks.
NO_TIER = "These are calls of {library} alone, so they belong to no tier of a framework."
OF_TIERS = ("The column tuning names the tier whose kernels a row counts. Rows of different tiers "
            "do not compare frameworks.")
Frames = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Part:
    """A section of the page. All its tables become CSV files too.

    A reader opens `folded` tables; `files` are too long for a page.
    """

    heading: str
    text: str = ""
    tables: Frames = field(default_factory=dict)
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    files: Frames = field(default_factory=dict)
    folded: Frames = field(default_factory=dict)


def not_measured(found: pd.DataFrame) -> list[Part]:
    """Return the section of what was not measured; `found` is from `study_reader.estimates`."""
    refused = study_reader.refused(found)
    return [Part("Not measured, and why", tables={"refused": refused})] if len(refused) else []


def last_column(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Move a column to the right end; an empty table has none."""
    return table[[*table.columns.drop(name), name]] if len(table) else table


def write(records: Records, title: str, parts: Sequence[Part], out: Path, plots: bool) -> Path:
    """Write the report into the folder `out` and return its page; draw only with `plots`.

    Raises OSError.
    """
    if (out / RAW[0]).exists():
        packed.pack(out / RAW[0])
    meta = records.meta
    raw = [packed.find(records.folder / name).name for name in RAW]
    source = page.Section("Where the numbers come from", [
        *provenance.concerns(meta), page.Facts(facts(records)), page.Files("Raw", raw),
        page.Text("A time is the median over processes of each process's median window. Its "
                  "95 % confidence interval needs three or more processes.", note=True),
        *provenance.environments(meta, "study.json")])
    sections = [_section(part, out) for part in parts]
    written = page.write(page.Page(title, [*sections, source]), out, "report", plots)
    manifest.write_manifest(out)
    return written[-1]


def facts(records: Records) -> list[tuple[str, str]]:
    """List what was measured, on what and when, as (name, value)."""
    meta, effort, rows = records.meta, records.meta["effort"], records.measurements
    workers = [f"{name} {worker.get('release', '')} on "
               f"{worker.get('device_name') or meta['device_kind']}"
               for name, worker in meta.get("workers", {}).items()]
    threads = f", {meta['threads']} threads" if meta["device_kind"] == "cpu" else ""
    failed = (~rows["status"].isin(["ok", "unsupported"])).sum()
    return [
        ("measured by", "; ".join(workers)),
        ("device", f"{meta['device_kind']}{threads}"),
        ("effort", f"{effort['processes']} processes, {effort['windows']} windows of "
                   f"{effort['window_seconds']:g} s a candidate; an operation of "
                   f"{effort['once_seconds']:g} s or more is timed once"),
        ("points", f"{rows['point'].nunique()} of {len(records.points)} measured, {failed} rows "
                   "failed or different (measurements.csv has the reasons)"),
        *(pair for pair in provenance.facts(meta) if pair[0] != "suite")]


def _section(part: Part, out: Path) -> page.Section:
    """Write a part's tables and return what the page shows of them."""
    written = page.write_tables({**part.tables, **part.folded, **part.files}, out)
    paths = {path.stem: f"tables/{packed.pack(path).name}" for path in written}
    folded = [page.Details(f"{name.replace('_', ' ')}: {len(frame)} rows", frame,
                           f"[{paths[name]}]({paths[name]})")
              for name, frame in part.folded.items()]
    files = [page.Files("Every row", [paths[name]]) for name in part.files]
    return page.Section(part.heading, [
        *([page.Text(part.text)] if part.text else []),
        *map(page.Table, part.tables.values()),
        *(page.Figure(name, draw) for name, draw in part.figures.items()), *folded, *files])
