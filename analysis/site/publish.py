"""Writes the site: static pages of all results, which work from a file and from any static host.

The first page is the leaderboard; below it stand results by the question they answer. A network has
a page with all its rows. A campaign has a page with its answer, figures, refused rows and
provenance; a trial has a page with its raw windows, so two clicks lead from a number to what it was
made of. Comparisons, explanations and studies have pages too, and so have all rows and releases.
Raw records lie beside the pages. Tables are Tabulator's (vendored in pages/), figures are Plotly's,
which its Python package brings.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.display import memory, provenance, ranking
from analysis.records import packed
from analysis.records.columns import LATE
from analysis.records.pages import read_page
from analysis.report import report, tables
from analysis.report.sections import SECTIONS
from analysis.site import figures, folders, grids, index, leaderboard
from analysis.site.grids import Grid, Published
from analysis.site.leaderboard import Board
from analysis.site.writer import Site, page_name
from analysis.trials import effort

PLOTS = {  # of a section of a report: the plots that stand in the site's
    "to_target": ("accuracy_steps", "accuracy_time"), "latency": ("latency_p50", "latency_p99"),
    "scaling": ("throughput", "efficiency"), "phases": ("phases",), "speed_up": ("speed_up",),
    "limits": ("limits",), "gpu_time": ("gpu_time",), "traffic": ("pcie_received", "energy"),
    "memory": ("peak_memory",)}
ROWS_TEXT = Markup("<p>Times of different hardware, precisions or settings cannot be compared: "
                   "choose one of each above the columns. "
                   f"{ranking.MARK}: the row has a caveat, which its page says.</p>")
RELEASES_TEXT = Markup(
    "<p>A ratio above 1 means that the second release is slower. Verdicts come from interleaved "
    "processes and say what difference could have been seen. Rows of two campaigns were measured "
    "at two times. "
    f"{ranking.MARK}: the row has a caveat, which its page says.</p>")


def publish(homes: Sequence[Path], out: Path, audits: Mapping[str, str],
            docs: Path | None = None) -> list[Path]:
    """Write the site of the folders `homes` into `out`, replace an earlier one; return its pages.

    They lie in one folder, the results. `audits` says what the audit of each campaign and study
    found, by its place there. `docs` is the documentation's source. Raises BadRecords, OSError.
    """
    for part in ("assets", "campaigns", "results", "workloads"):
        shutil.rmtree(out / part, ignore_errors=True)
    site = Site(out, homes)
    picture = docs / "first-look.png" if docs else None
    site.copy_assets([picture] if picture else [])
    campaigns = [grids.read(home) for home in homes if (home / "campaign.json").exists()]
    for published in campaigns:
        write_campaign(site, published, audits.get(published.name, "not made"))
    others = [home for home in homes if index.is_other(home)]
    pages = {published.name: published.pages for published in campaigns}
    for home in others:
        folders.write_folder(site, home, pages.get(home.name, {}), audits)
    site.write("rows.html", "rows.html.j2", "All rows of all campaigns",
               tables=[("", grids.every_row(campaigns))], text=ROWS_TEXT)
    site.write("campaigns.html", "rows.html.j2", "All campaigns",
               tables=[("", grids.campaign_list(campaigns))], text="")
    write_releases(site, campaigns, [home for home in others if (home / "compare.csv").exists()])
    boards = leaderboard.boards(campaigns)
    write_workloads(site, campaigns, boards)
    verified = sum((published.rows["verified"] == "yes").sum() for published in campaigns)
    site.write("index.html", "index.html.j2", "Which deep learning framework is the fastest?",
               boards=boards, filters=leaderboard.filters(boards), verified=verified,
               questions=index.by_question(index.cards(campaigns, others)),
               first_look=f"assets/{picture.name}" if picture else "",
               count=sum(len(published.rows) for published in campaigns))
    site.write_search(docs)
    site.copy_results()
    return site.written


def write_workloads(site: Site, campaigns: Sequence[Published], boards: Sequence[Board]) -> None:
    """Write a page for each network: its lines of all boards, and its rows of all campaigns."""
    names = dict.fromkeys(name for published in campaigns for name in published.rows["network"])
    for name in names:
        own = [replace(board, lines=lines) for board in boards
               if (lines := [line for line in board.lines if line.network == name])]
        shown = [replace(published, rows=rows) for published in campaigns
                 if len(rows := published.rows[published.rows["network"] == name])]
        parameters = max(published.rows["parameters"].max() for published in shown)
        count = sum(len(published.rows) for published in shown)
        facts = f"{parameters:,} parameters; {count} rows in {len(shown)} campaigns."
        site.write(f"workloads/{page_name(name)}.html", "workload.html.j2", str(name), boards=own,
                   facts=facts, table=grids.every_row(shown, "../"))


def write_campaign(site: Site, published: Published, audit: str) -> None:
    """Write the page of a campaign and one for each of its trials."""
    rows, speeds, links = published.rows, published.speeds, published.pages
    raw, home = f"../../results/{published.name}/", published.campaign.folder
    measured = rows["status"] == "ok"
    verified = rows["verified"] == "yes"
    drawn = []
    if verified.any():
        drawn.append(figures.step_time(rows, links))
    if speeds["verdict"].ne(ranking.FASTEST).any():
        drawn.append(figures.relative_speed(rows, speeds, links))
    if rows["loss_first"].notna().any():
        drawn.append(figures.losses(published.campaign, rows, links))
    refused, times = tables.refused(rows), tables.times(rows, speeds)
    refused_links = rows["trial"][~measured | ~verified].map(links).tolist()
    times_links = rows["trial"][measured].map(links).tolist()
    told = [*effort.unfinished(published.campaign), *effort.remarks(published.campaign)]
    site.write(f"campaigns/{published.name}/index.html", "campaign.html.j2", published.title,
               figures=drawn, raw=raw, audit=audit, place=published.name,
               headline=report.headline(rows), throughout=ranking.throughout(rows),
               work=ranking.unit_of_work(rows),
               answer=grids.answer(published), caveats=ranking.caveats(rows),
               see_first=ranking.SEE_FIRST,
               effort=told, files=folders.raw_files(home),
               more=index.is_other(home), hardware=index.facts_of(home),
               sections=_sections(home, rows),
               refused=grids.linked(refused, "verdict", refused_links),
               times=grids.linked(times, "time per", times_links),
               concerns=published.campaign.meta.get("concerns") or [],
               provenance=provenance.facts(published.campaign.meta))
    for _, row in rows.iterrows():
        _write_trial(site, published, row, raw)


def write_releases(site: Site, campaigns: Sequence[Published], compared: Sequence[Path]) -> None:
    """Write the page of releases.

    It shows comparisons with their verdicts, and workloads that several releases ran on one
    machine.
    """
    pages = {published.name: {trial: f"campaigns/{published.name}/{page}"
                              for trial, page in published.pages.items()}
             for published in campaigns}
    links = {(name, trial): page for name, own in pages.items() for trial, page in own.items()}
    groups = grids.by_release(campaigns)
    shown = []
    for folder in compared:
        table, title = packed.text_table(folder / "compare.csv"), folder.name
        if (folder / "campaign.json").exists():
            title = index.campaign_title(read_page(folder / "campaign.json", ""))
        shown.append((title, grids.comparison(table, pages.get(folder.name, {}))))
    if groups:
        shown.append(("The same workload on the same hardware",
                      grids.release_rows(groups, links)))
    site.write("releases.html", "rows.html.j2", "Releases over time", tables=shown,
               text=RELEASES_TEXT, figures=[figures.releases(groups, links)] if groups else [])


def _sections(folder: Path, rows: pd.DataFrame) -> list[tuple[str, str, Grid, list[str], str]]:
    """Return (heading, file, table, plots, note) of each section that a report has, but `times`."""
    found = []
    for name, heading, *_ in SECTIONS:
        table = packed.text_table(folder / "tables" / f"{name}.csv")
        if len(table) and name != "times":
            images = [f"plots/{plot}.svg" for plot in PLOTS.get(name, ())]
            images = [image for image in images if (folder / image).exists()]
            note = memory.note(rows) if name == "memory" else ""
            found.append((heading, f"tables/{name}.csv", grids.grid(table), images, note))
    return found


def _write_trial(site: Site, published: Published, row: "pd.Series[Any]", raw: str) -> None:
    trial, folder = row["trial"], f"campaigns/{published.name}/"
    campaign = published.campaign
    processes = campaign.rows("processes", trial).drop(
        columns=["trial", *(() if campaign.proves_each_process else LATE["processes"])])
    windows = campaign.rows("windows", trial).drop(columns="trial")
    file = published.pages[trial].removesuffix(".html") + ".windows.csv"
    if len(windows):
        site.write_text(folder + file, windows.to_csv(index=False, lineterminator="\n"))
    logs = [_log(campaign.folder, str(log), raw) for log in processes["log"]]
    drawn = [figures.windows_of(windows, "step_seconds", "seconds a step")]
    if row["mode"] == "training":
        drawn.append(figures.windows_of(windows, "loss", "loss"))
        processes = processes.drop(columns=["output_error", "output_limit"], errors="ignore")
    facts = [(name, str(value)) for name, value in row.items()
             if not pd.isna(value) and value != ""]
    whole = packed.find(campaign.folder / "windows.csv").name
    site.write(folder + published.pages[trial], "trial.html.j2", trial, campaign=published.title,
               raw=raw, file=file, whole=whole, facts=facts, figures=drawn if len(windows) else [],
               processes=grids.linked(processes, "log", logs),
               windows=grids.grid(windows))


def _log(folder: Path, log: str, raw: str) -> str:
    """Return the link to a log, or to the archive that holds it."""
    names = (name for name in (log, packed.LOGS) if (folder / name).is_file())
    name = next(names, "")
    return raw + name if name else ""
