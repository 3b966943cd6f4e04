"""Writes a study's report: report.html (one file, light and dark), report.md, tables as CSV, plots, hashes.

What is on the page is decided by the study's own module; where the numbers come from is the same for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from analysis.display import page as pages
from analysis.records import manifest, packed
from analysis.records.study_reader import Records

RAW = ("measurements.csv", "points.csv", "study.json")


@dataclass(frozen=True)
class Part:
    """A heading of the page, what it shows, and how to read that. `folded` are tables that a reader opens; `files` are too long
    for a page and only CSV."""

    heading: str
    text: str = ""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    files: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    folded: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def write(records: Records, title: str, parts: Sequence[Part], out: Path) -> Path:
    """Write the report into the folder `out` and return its page. Raises OSError."""
    (out / "plots").mkdir(parents=True, exist_ok=True)
    (out / "tables").mkdir(exist_ok=True)
    if (out / RAW[0]).exists():
        packed.pack(out / RAW[0])
    drawn, files = {}, {}
    for part in parts:
        for name, table in {**part.tables, **part.folded, **part.files}.items():
            table.to_csv(out / "tables" / f"{name}.csv", index=False, lineterminator="\n")
            files[name] = packed.pack(out / "tables" / f"{name}.csv").name
        for name, figure in part.figures.items():
            drawn[name] = pages.draw_svg(figure)
            (out / "plots" / f"{name}.svg").write_text(drawn[name], encoding="utf-8")
            figure.savefig(out / "plots" / f"{name}.png", dpi=160)
    for kind in ("md", "html"):
        environment = Environment(loader=FileSystemLoader(pages.TEMPLATES), undefined=StrictUndefined, autoescape=kind == "html",
                                  trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(markdown=pages.markdown, inline=pages.inline)
        page = environment.get_template(f"study.{kind}.j2").render(title=title, parts=parts, drawn=drawn, meta=records.meta,
                                                                   provenance=provenance(records), files=files,
                                                                   raw=[packed.find(records.folder / name).name for name in RAW])
        (out / f"report.{kind}").write_text(page, encoding="utf-8")
    manifest.write_manifest(out)
    return out / "report.html"


def provenance(records: Records) -> list[tuple[str, str]]:
    """List what was measured, on what and when, as (name, value)."""
    meta, effort = records.meta, records.meta["effort"]
    workers = [f"{name} {worker.get('release', '')} on {worker.get('device_name') or meta['device_kind']}"
               for name, worker in meta.get("workers", {}).items()]
    commit = (meta.get("git_commit") or "unknown")[:12]
    failed = records.measurements[~records.measurements["status"].isin(["ok", "unsupported"])]
    listed = [
        ("started", meta["started"]),
        ("finished", meta["finished"] or "not finished: interrupted, or running still"),
        ("measured by", "; ".join(workers)),
        ("device", f"{meta['device_kind']}" + (f", {meta['threads']} threads" if meta["device_kind"] == "cpu" else "")),
        ("processor", str(meta["machine"]["cpu"]["model"])),
        ("GPUs", ", ".join(str(gpu.get("name")) for gpu in meta["machine"]["gpus"]) or "none"),
        ("effort", f"{effort['processes']} processes, {effort['windows']} windows of {effort['window_seconds']:g} s a candidate; "
                   f"an operation of {effort['once_seconds']:g} s or more is timed once"),
        ("points", f"{records.measurements['point'].nunique()} of {len(records.points)} measured, "
                   f"{len(failed)} rows failed or different (measurements.csv says why)"),
        ("dlbench", f"{meta['dlbench']} at commit {commit}" + (", stated and not checked" if meta.get("git_commit_stated") else "")
                    + (", with uncommitted changes" if meta.get("git_dirty") else "")),
        ("source", f"SHA-256 {meta['source_hash']}"),
        ("dirty", "; ".join(meta["dirty"])),
    ]
    return [(name, value) for name, value in listed if value]
