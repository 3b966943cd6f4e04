"""Writes the site: static pages of everything under results/, which work from a file and from any static host.

A first page that groups results by the question they answer; a page a campaign with its answer, figures, refused rows and
provenance; a page a trial with its raw windows, so that two clicks lead from a number to what it was made of; a page for every
comparison, explanation and study; all rows, all releases, and the method. Raw records lie beside the pages. Tables are Tabulator's
(vendored in pages/), figures Plotly's, which its Python package brings.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.display import provenance, ranking
from analysis.report import report, tables
from analysis.site import figures as site_figures
from analysis.site import folders as site_folders
from analysis.site import index, markdown
from analysis.site import tables as site_tables
from analysis.site.folders import RAW, REPORTS
from analysis.site.tables import Published
from analysis.site.writer import Site

SECTIONS = {  # of a campaign's page: a table that its report wrote, the heading, and the plots below it
    "scaling": ("How it scales", ("throughput", "efficiency")),
    "strategies": ("Which strategy of aggregation is fastest", ()),
    "phases": ("What a step is made of", ("phases",)),
    "speed_up": ("The GPU's speed-up over the processor", ("speed_up",)),
    "reasons": ("Why the slower ones are slower", ()),
    "limits": ("How near the machine's limit", ("limits",)),
    "gpu_time": ("Where the time on the device goes", ("gpu_time",)),
    "traffic": ("What a mini-batch moves and costs", ("pcie_received", "energy")),
    "memory": ("Peak memory", ("peak_memory",)),
    "remarks": ("What must be known of ranked rows", ()),
}


def publish(results: Path, docs: Path, out: Path, audits: Mapping[str, str]) -> list[Path]:
    """Write the site of the folders in `results` and the pages in `docs` into `out`, in place of what a former call wrote.

    `audits` says what the audit of each campaign and study found, by its folder within `results`. Returns the pages. Raises
    BadRecords, OSError.
    """
    folders = sorted(folder for folder in results.iterdir() if folder.is_dir())
    for part in ("assets", "campaigns", "docs", "results"):
        shutil.rmtree(out / part, ignore_errors=True)
    site = Site(out, results)
    site.copy_assets()
    shutil.copytree(results, out / "results")
    campaigns = [site_tables.read(folder) for folder in folders if (folder / "campaign.json").exists()]
    for published in campaigns:
        write_campaign(site, published, audits.get(published.name, "not made"))
    others = [folder for folder in folders if index.is_other(folder)]
    pages = {published.name: published.pages for published in campaigns}
    for folder in others:
        site_folders.write_folder(site, folder, pages.get(folder.name, {}), audits)
    write_rows(site, campaigns)
    write_releases(site, campaigns, [folder for folder in others if (folder / "compare.csv").exists()])
    headings = write_docs(site, docs)
    cards = [site.pictured(card, results / card.name) for card in index.cards(campaigns, others)]
    site.write("index.html", "index.html.j2", "Deep learning frameworks, compared behind a proof", pages=headings,
               questions=index.by_question(cards), campaigns=site_tables.campaign_list(campaigns),
               first_look=site.copy_picture(docs / "first-look.png"), count=sum(len(published.rows) for published in campaigns),
               verified=sum((published.rows["verified"] == "yes").sum() for published in campaigns))
    return site.written


def write_campaign(site: Site, published: Published, audit: str) -> None:
    """Write the page of a campaign and one for each of its trials."""
    rows, speeds, links = published.rows, published.speeds, published.pages
    raw, home = f"../../results/{published.name}/", published.campaign.folder
    figures = []
    if (rows["verified"] == "yes").any():
        figures.append(site_figures.step_time(rows, links))
    if speeds["verdict"].ne(ranking.FASTEST).any():
        figures.append(site_figures.relative_speed(rows, speeds, links))
    if (rows["status"] == "ok").any():
        figures.append(site_figures.losses(published.campaign, rows, links))
    measured = rows["status"] == "ok"
    refused = ~measured | (rows["verified"] != "yes")
    site.write(f"campaigns/{published.name}/index.html", "campaign.html.j2", published.title, figures=figures, raw=raw, audit=audit,
               place=published.name, headline=report.headline(rows), throughout=ranking.throughout(rows),
               answer=site_tables.answer(published), files=[name for name in RAW if (home / name).exists()],
               page=next((name for name in REPORTS if (home / name).exists()), ""), more=index.is_other(home),
               refused=site_tables.linked(tables.refused(rows), "verdict", rows["trial"][refused].map(links).tolist()),
               times=site_tables.linked(tables.times(rows, speeds), "time per", rows["trial"][measured].map(links).tolist()),
               sections=_sections(home), hardware=index.facts_of(home),
               concerns=published.campaign.meta.get("concerns") or [], provenance=provenance.facts(published.campaign.meta))
    for _, row in rows.iterrows():
        _write_trial(site, published, row, raw)


def write_rows(site: Site, campaigns: Sequence[Published]) -> None:
    """Write the page of all rows of all campaigns."""
    text = "<p>Times of different hardware, precisions or settings are no comparison: choose one of each above the columns.</p>"
    site.write("rows.html", "rows.html.j2", "All rows of all campaigns", tables=[("", site_tables.every_row(campaigns))],
               text=Markup(text))


def write_releases(site: Site, campaigns: Sequence[Published], compared: Sequence[Path]) -> None:
    """Write the page of releases: live comparisons with their verdicts, and workloads that several releases ran on one machine."""
    pages = {published.name: {trial: f"campaigns/{published.name}/{page}" for trial, page in published.pages.items()}
             for published in campaigns}
    links = {(name, trial): page for name, own in pages.items() for trial, page in own.items()}
    groups = site_tables.by_release(campaigns)
    shown = []
    for folder in compared:
        table = pd.read_csv(folder / "compare.csv", dtype=str, keep_default_na=False)
        asked = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["comparison"]
        shown.append((f"{asked['a']} against {asked['b']}", site_tables.comparison(table, pages[folder.name])))
    if groups:
        shown.append(("The same workload on the same hardware", site_tables.release_rows(groups, links)))
    text = Markup("<p>A ratio above 1 means that the second release is slower. Verdicts come from interleaved processes and say "
                  "what difference could have been seen; rows of two campaigns were measured at two times.</p>")
    site.write("releases.html", "rows.html.j2", "Releases over time", tables=shown, text=text,
               figures=[site_figures.releases(groups, links)] if groups else [])


def write_docs(site: Site, docs: Path) -> list[tuple[str, str]]:
    """Render the pages of `docs` and return (name, heading) of each."""
    headings = []
    shutil.copytree(docs, site.out / "docs", ignore=shutil.ignore_patterns("*.md"))
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).with_suffix("").as_posix()
        heading, _, rest = path.read_text(encoding="utf-8").partition("\n")
        headings.append((name, heading.lstrip("# ")))
        site.write(f"docs/{name}.html", "rows.html.j2", headings[-1][1], tables=[], text=markdown.render(rest, ""))
    return headings


def _sections(folder: Path) -> list[tuple[str, str, site_tables.Grid, list[str]]]:
    """(heading, file, table, plots) of each part of `SECTIONS` that a campaign's report has."""
    found = []
    for name, (heading, plots) in SECTIONS.items():
        file = folder / "tables" / f"{name}.csv"
        table = pd.read_csv(file, dtype=str, keep_default_na=False) if file.exists() else pd.DataFrame()
        if len(table):
            images = [f"plots/{plot}.svg" for plot in plots if (folder / "plots" / f"{plot}.svg").exists()]
            found.append((heading, f"tables/{name}.csv", site_tables.grid(table), images))
    return found


def _write_trial(site: Site, published: Published, row: "pd.Series[Any]", raw: str) -> None:
    trial, folder = row["trial"], f"campaigns/{published.name}/"
    campaign = published.campaign
    processes = campaign.processes[campaign.processes["trial"] == trial].drop(columns="trial")
    windows = campaign.windows[campaign.windows["trial"] == trial]
    file = published.pages[trial].removesuffix(".html") + ".windows.csv"
    if len(windows):
        site.write_text(folder + file, windows.to_csv(index=False, lineterminator="\n"))
    logs = [f"{raw}{log}" if (campaign.folder / str(log)).is_file() else "" for log in processes["log"]]
    figures = [site_figures.windows_of(windows, "step_seconds", "seconds a step"), site_figures.windows_of(windows, "loss", "loss")]
    facts = [(name, str(value)) for name, value in row.items() if not pd.isna(value) and value != ""]
    site.write(folder + published.pages[trial], "trial.html.j2", trial, campaign=published.title, raw=raw, file=file, facts=facts,
               figures=figures if len(windows) else [], processes=site_tables.linked(processes, "log", logs),
               windows=site_tables.grid(windows.drop(columns="trial")))
