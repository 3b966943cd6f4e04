"""Writes the report of one or several campaigns: report.html (one file, light and dark), report.md, tables as CSV, plots.

The page opens with the answer and its plot, then says what stands behind it: refused rows, the machine's concerns, the
environments and the method. It reads records and nothing else, so it can be made again anywhere.
"""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from analysis.display import plots, tables
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import gpu_time, reasons, roofline, scaling, scaling_plots, speed_up
from analysis.statistics import bootstrap
from analysis.trials import counters, phases, summary

TEMPLATES = Path(__file__).parents[1] / "display" / "templates"
PAGE_COLOURS = {plots.INK: "var(--ink)", plots.GRID: "var(--grid)", "#ffffff": "none"}  # of a plot within the page
SIDE_BY_SIDE = 3  # contestants that still have room in one row of a terminal


@dataclass(frozen=True)
class Section:
    """One campaign as the templates show it. `slug` opens the names of its files."""

    slug: str
    campaign: Campaign
    throughout: str
    headline: str
    tables: dict[str, pd.DataFrame]  # by title, in the order of the page
    figures: dict[str, Figure]
    drawn: dict[str, str]  # the same figures as SVG
    unscaled: str  # why rows on several devices have no speed-up; empty where they have one, or where there are none
    several_traced: bool  # whether a trial on several devices was


def write(folders: Sequence[str | Path], out: str | Path, plots: bool = True) -> list[Path]:
    """Write the report of the campaigns in `folders` into the folder `out` and return every path. Raises BadRecords, OSError.

    Without `plots` the files of the plots are left out: the page holds them too.
    """
    out = Path(out)
    sections = [_section(reader.read(folder), number, len(folders)) for number, folder in enumerate(folders, start=1)]
    (out / "plots").mkdir(parents=True, exist_ok=True)
    (out / "tables").mkdir(exist_ok=True)
    paths = []
    for section in sections:
        for name, table in section.tables.items():
            paths.append(out / "tables" / f"{section.slug}{name}.csv")
            table.to_csv(paths[-1], index=False, lineterminator="\n")
        for name, figure in section.figures.items() if plots else ():
            svg, png = (out / "plots" / f"{section.slug}{name}.{kind}" for kind in ("svg", "png"))
            svg.write_text(section.drawn[name], encoding="utf-8")
            figure.savefig(png, dpi=160)
            paths += [svg, png]
    for kind in ("md", "html"):
        environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=kind == "html",
                                  trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(markdown=markdown, provenance=provenance, inline=inline)
        page = environment.get_template(f"report.{kind}.j2").render(sections=sections, statistics=bootstrap)
        (out / f"report.{kind}").write_text(page, encoding="utf-8")
        paths.append(out / f"report.{kind}")
    return paths


def terminal_table(campaign: Campaign) -> Table:
    """Make the table that ends a run: every trial with its time and interval, or why it has none."""
    rows = summary.summarise(campaign)
    speeds = tables.relative(campaign, rows)
    caption = tables.throughout(rows)
    table = Table(title=f"{campaign.meta['name']}: time per mini-batch", caption_justify="left")
    side_by_side = tables.contestants(rows).nunique() <= SIDE_BY_SIDE
    answer = tables.answer(rows, speeds) if side_by_side else tables.listing(rows, speeds)
    for column in answer.columns.astype(str):
        table.add_column(column, justify="right" if column == "batch" else "left", overflow="fold")
    for cells in answer.itertuples(index=False):
        if not side_by_side and cells[0]:
            table.add_section()
        table.add_row(*(escape(str(cell)) for cell in cells))
    for row in tables.refused(rows).to_dict("records"):
        caption += f"\n{row['framework']}, {row['network']}, batch {row['batch']}: {row['verdict']}: {row['reason']}"
    table.caption = escape(caption.strip())
    return table


def _section(campaign: Campaign, number: int, count: int) -> Section:
    rows = summary.summarise(campaign)
    speeds = tables.relative(campaign, rows)
    answer = tables.answer(rows, speeds)
    shown = {"answer": answer, "times": tables.times(rows, speeds), "memory": tables.memory(rows),
             "refused": tables.refused(rows), "remarks": tables.remarks(rows)}
    if rows[list(tables.TRAFFIC)].notna().any(axis=None):
        checks = {trial["trial"]: counters.cross_check(campaign, trial) for trial in campaign.trials}
        shown["traffic"] = tables.traffic(rows, checks)
    figures = {}
    pairs = speed_up.by_trial(campaign, rows)
    if len(pairs):
        shown["speed_up"] = speed_up.table(pairs)
        figures["speed_up"] = speed_up.figure(pairs)
    times = gpu_time.by_class(campaign.kernels, rows)
    if len(times):
        shown["gpu_time"] = gpu_time.table(times)
    gaps = reasons.table(campaign, speeds)
    if len(gaps):
        shown["reasons"] = gaps
    bounded = roofline.by_trial(campaign, rows)
    if len(bounded):
        shown["limits"] = roofline.table(bounded)
    scaled, parts = scaling.curves(campaign, rows), phases.table(campaign, rows)
    if len(scaled):
        shown["scaling"] = scaling.table(scaled)
        figures["throughput"] = scaling_plots.throughput(scaled)
        figures["efficiency"] = scaling_plots.efficiency(scaled)
    best = scaling.winners(campaign, rows)
    if len(best):
        shown["strategies"] = best
    if len(parts):
        shown["phases"] = scaling.phase_table(parts)
    if parts[list(scaling.PARTS)].notna().any(axis=None):
        figures["phases"] = scaling_plots.phases(parts)
    if (rows["verified"] == "yes").any():
        figures["step_time"] = plots.step_time(rows)
    if len(speeds) > speeds["verdict"].eq(tables.FASTEST).sum():
        figures["relative_speed"] = plots.relative_speed(speeds)
    if (rows["status"] == "ok").any():
        figures["losses"] = plots.losses(rows, campaign.windows)
    if rows["peak_memory_bytes"].notna().any():
        figures["peak_memory"] = plots.peak_memory(rows)
    if rows["pcie_rx_bytes_per_step"].notna().any():
        figures["pcie_received"] = plots.pcie_received(rows)
    if rows["energy_joules_per_step"].notna().any():
        figures["energy"] = plots.energy(rows)
    if len(times):
        figures["gpu_time"] = gpu_time.figure(times)
    if len(bounded):
        figures["limits"] = roofline.figure(bounded)
    slug = "" if count == 1 else f"{number}-{re.sub('[^a-z0-9]+', '-', campaign.meta['name'].lower()).strip('-')}-"
    return Section(slug, campaign, tables.throughout(rows), headline(rows), shown, figures,
                   {name: draw_svg(figure) for name, figure in figures.items()}, scaling.why_not(rows, scaled),
                   bool((times["devices"] > 1).any()))


def headline(rows: pd.DataFrame) -> str:
    """Say how many trials there are, and what came of them."""
    counts = {"ranked": (rows["verified"] == "yes").sum(), "measured but not verified": ((rows["status"] == "ok")
              & (rows["verified"] != "yes")).sum(), "unsupported": (rows["status"] == "unsupported").sum(),
              "failed": (rows["status"] == "failed").sum()}
    return f"{len(rows)} trials: " + ", ".join(f"{count} {word}" for word, count in counts.items() if count) + "."


def provenance(campaign: Campaign) -> list[tuple[str, str]]:
    """List what was run, on what and when, as (name, value); what was not recorded is left out."""
    meta, machine = campaign.meta, campaign.meta["machine"]
    cpu, memory = machine.get("cpu", {}), machine.get("memory", {})
    size = machine.get("memory_bytes") or memory.get("total_bytes")
    commit = meta.get("git_commit") or ""
    system = machine.get("system", {})
    listed = [
        ("started", meta["started"]),
        ("finished", meta["finished"] or "not finished: interrupted, or running still"),
        ("suite", f"{meta.get('suite_file') or 'given as keys'}, seed {meta.get('seed')}"),
        ("dlbench", f"{meta.get('dlbench', '')} at commit {commit[:12] or 'unknown'}"
                    + (", stated and not checked" if meta.get("git_commit_stated") else "")
                    + (", with uncommitted changes" if meta.get("git_dirty") else "")),
        ("source", f"SHA-256 {meta['source_hash']}" if meta.get("source_hash") else ""),
        ("processor", ", ".join(filter(None, [cpu.get("model"), _count(cpu, "physical", "cores"),
                                              _count(cpu, "logical", "hardware threads")]))),
        ("memory", f"{size / 2**30:.3g} GiB" if size else ""),
        ("GPUs", ", ".join(str(gpu.get("name")) for gpu in machine.get("gpus") or ()) or "none"),
        ("not measured", "; ".join((meta.get("telemetry") or {}).get("not_measured", ()))),
        ("dirty", "; ".join(meta.get("dirty") or ())),
        ("resumed", "; ".join(meta.get("resumed") or ())),
        ("memory ran short", "; ".join(meta.get("shortages") or ())),
        ("system", " ".join(str(system[key]) for key in ("os", "kernel", "architecture") if system.get(key))),
    ]
    return [(name, value) for name, value in listed if value]


def _count(cpu: dict[str, Any], key: str, unit: str) -> str:
    count = cpu.get(key) or cpu.get(f"{key}_cores")
    return f"{count} {unit}" if count else ""


def draw_svg(figure: Figure) -> str:
    """Draw a figure as SVG with text as text; Verdana has the widths of DejaVu Sans where that is not installed."""
    buffer = io.StringIO()
    with mpl.rc_context(plots.STYLE):  # text and identifiers of an SVG are decided as it is written
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana")


def inline(svg: str, name: str) -> str:
    """Prepare an SVG for the page: its neutral colours become the page's, its identifiers its own, and it scales."""
    svg = svg[svg.index("<svg"):]
    for colour, page in PAGE_COLOURS.items():
        svg = svg.replace(colour, page)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    label = name.replace("_", " ")
    return re.sub(r'width="([\d.]+)pt" height="[\d.]+pt"',
                  lambda found: f'style="max-width: {1.4 * float(found[1]):.0f}px" role="img" aria-label="{label}"', svg, count=1)


def markdown(table: pd.DataFrame) -> str:
    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + " --- |" * len(table.columns)
    return "\n".join([line(table.columns), rule, *(line(row) for row in table.itertuples(index=False))])
