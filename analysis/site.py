"""Writes the site: static pages of everything under results/, which work from a file and from any static host.

A page a campaign with its answer, figures, refused rows and provenance; a page a trial with its raw windows, so that two clicks
lead from a number to what it was made of; a page for every other folder of results; all rows, all releases, and the method. Raw
records lie beside the pages. Tables are Tabulator's (vendored in pages/), figures Plotly's, which its Python package brings.
"""

import html
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis import report, site_figures, site_tables, speed_up, tables
from analysis.site_tables import Published

PAGES = Path(__file__).parent / "pages"
RAW = ("trials.csv", "windows.csv", "processes.csv", "counters.csv", "kernels.csv", "operators.csv", "phases.csv", "campaign.json",
       "SHA256SUMS")
REPORTS = ("report.html", "compare.html", "explain.html", "study.html")
MOST_ROWS = 2000  # of a table in a page; a longer one is a link to its CSV
MARKDOWN = MarkdownIt("commonmark").enable("table")


def publish(results: Path, docs: Path, out: Path, audits: Mapping[str, str]) -> list[Path]:
    """Write the site of the folders in `results` and the pages in `docs` into `out`, in place of what a former call wrote.

    `audits` says of each campaign's name what its audit found. Returns the pages. Raises BadRecords, OSError.
    """
    folders = sorted(folder for folder in results.iterdir() if folder.is_dir())
    for part in ("assets", "campaigns", "docs", "results"):
        shutil.rmtree(out / part, ignore_errors=True)
    site = Site(out)
    site.copy_assets()
    shutil.copytree(results, out / "results")
    campaigns = [site_tables.read(folder) for folder in folders if (folder / "campaign.json").exists()]
    for published in campaigns:
        write_campaign(site, published, audits.get(published.name, "not made"))
    others = [folder for folder in folders if not (folder / "campaign.json").exists() or (folder / "compare.csv").exists()]
    for folder in others:
        write_folder(site, folder)
    write_rows(site, campaigns)
    write_releases(site, campaigns, [folder for folder in others if (folder / "compare.csv").exists()])
    headings = write_docs(site, docs)
    site.write("index.html", "index.html.j2", "All results", pages=headings,
               campaigns=site_tables.campaign_list(campaigns), others=site_tables.folder_list(others))
    return site.written


class Site:
    """The folder that is written, and the templates."""

    def __init__(self, out: Path):
        self.out = out
        self.written: list[Path] = []
        self.templates = Environment(loader=FileSystemLoader([PAGES, PAGES.parent]), undefined=StrictUndefined, autoescape=True,
                                     trim_blocks=True, lstrip_blocks=True)
        self.templates.filters["json"] = embed

    def write(self, name: str, template: str, title: str, **values: Any) -> None:
        top = "../" * name.count("/")
        values = {"figures": [], **values}
        page = self.templates.get_template(template).render(title=title, top=top, plots=bool(values["figures"]), **values)
        self.write_text(name, page)
        self.written.append(self.out / name)

    def write_text(self, name: str, text: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy_assets(self) -> None:
        self.write_text("assets/plotly.min.js", get_plotlyjs())
        self.write_text("assets/site.css", self.templates.get_template("site.css.j2").render())
        for name in ("site.js", "tabulator.min.js", "tabulator.min.css", "tabulator.LICENSE"):
            shutil.copy(PAGES / name, self.out / "assets" / name)


def write_campaign(site: Site, published: Published, audit: str) -> None:
    """Write the page of a campaign and one for each of its trials."""
    rows, speeds, links = published.rows, published.speeds, published.pages
    raw = f"../../results/{published.name}/"
    pairs = speed_up.by_trial(published.campaign, rows)
    figures = []
    if (rows["verified"] == "yes").any():
        figures.append(site_figures.step_time(rows, links))
    if speeds["verdict"].ne(tables.FASTEST).any():
        figures.append(site_figures.relative_speed(rows, speeds, links))
    if (rows["status"] == "ok").any():
        figures.append(site_figures.losses(published.campaign, rows, links))
    measured = rows["status"] == "ok"
    refused = ~measured | (rows["verified"] != "yes")
    site.write(f"campaigns/{published.name}/index.html", "campaign.html.j2", published.title, figures=figures, raw=raw, audit=audit,
               headline=report.headline(rows), throughout=tables.throughout(rows), answer=site_tables.answer(published),
               files=[name for name in RAW if (published.campaign.folder / name).exists()],
               page=next((name for name in REPORTS if (published.campaign.folder / name).exists()), ""),
               refused=site_tables.linked(tables.refused(rows), "verdict", rows["trial"][refused].map(links).tolist()),
               times=site_tables.linked(tables.times(rows, speeds), "time per", rows["trial"][measured].map(links).tolist()),
               speed_up=site_tables.grid(speed_up.table(pairs)) if len(pairs) else None,
               concerns=published.campaign.meta.get("concerns") or [], provenance=report.provenance(published.campaign))
    for _, row in rows.iterrows():
        _write_trial(site, published, row, raw)


def write_folder(site: Site, folder: Path) -> None:
    """Write the page of results that are no campaign: their own page, text, images and tables, whatever of these there is."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts)
    page = next((name for name in [*REPORTS, *files] if name in files and name.endswith(".html")), "")
    text = next((name for name in files if name.endswith(".md")), "")
    shown = []
    for name in files:
        if name.endswith(".csv") and name not in RAW and (folder / name).read_text(encoding="utf-8").strip():
            table = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
            if len(table) <= MOST_ROWS:
                shown.append((name, site_tables.grid(table)))
    raw = f"../results/{folder.name}/"
    images = [name for name in files if name.endswith(".svg") or (name.endswith(".png") and name[:-3] + "svg" not in files)]
    site.write(f"campaigns/{folder.name}.html", "folder.html.j2", folder.name, raw=raw, page=page, files=files, tables=shown,
               images=images, text=_markdown((folder / text).read_text(encoding="utf-8"), raw) if text else "")


def write_rows(site: Site, campaigns: Sequence[Published]) -> None:
    """Write the page of all rows of all campaigns."""
    text = "<p>Times of different hardware, precisions or settings are no comparison: choose one of each above the columns.</p>"
    site.write("rows.html", "rows.html.j2", "All rows of all campaigns", tables=[("", site_tables.every_row(campaigns))],
               text=Markup(text))


def write_releases(site: Site, campaigns: Sequence[Published], compared: Sequence[Path]) -> None:
    """Write the page of releases: live comparisons with their verdicts, and workloads that several releases ran on one machine."""
    links = {(published.name, trial): f"campaigns/{published.name}/{page}"
             for published in campaigns for trial, page in published.pages.items()}
    groups = site_tables.by_release(campaigns)
    shown = []
    for folder in compared:
        table = pd.read_csv(folder / "compare.csv", dtype=str, keep_default_na=False)
        asked = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["comparison"]
        shown.append((f"{asked['a']} against {asked['b']}", site_tables.comparison(table, f"campaigns/{folder.name}/")))
    if groups:
        shown.append(("The same workload on the same hardware", site_tables.release_rows(groups, links)))
    text = Markup("<p>A ratio above 1 means that the second release is slower. Verdicts come from interleaved processes and say "
                  "what difference could have been seen; rows of two campaigns were measured at two times.</p>")
    site.write("releases.html", "rows.html.j2", "Releases over time", tables=shown, text=text,
               figures=[site_figures.releases(groups, links)] if groups else [])


def write_docs(site: Site, docs: Path) -> list[tuple[str, str]]:
    """Render the pages of `docs` and return (name, heading) of each."""
    headings = []
    for path in sorted(docs.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        heading, _, rest = text.partition("\n")
        headings.append((path.stem, heading.lstrip("# ")))
        site.write(f"docs/{path.stem}.html", "rows.html.j2", headings[-1][1], tables=[], text=_markdown(rest, ""))
    return headings


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


def _markdown(text: str, raw: str) -> Markup:
    """Render a page; links to other pages of docs/ lead to theirs, and those of a folder of results into its raw files."""
    page = MARKDOWN.render(text)
    page = re.sub(r'href="([\w-]+)\.md(#[\w-]*)?"', lambda found: f'href="{found[1]}.html{found[2] or ""}"', page) if not raw else \
        re.sub(r'(src|href)="(?!https?:|#|/|\.\.)([^"]+)"', rf'\g<1>="{html.escape(raw)}\g<2>"', page)
    return Markup(page.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>"))


def embed(figure: Any) -> Markup:
    """JSON that may stand within a script element; numbers that are none become null."""
    finite = json.loads(json.dumps(figure, default=str), parse_constant=lambda name: None)
    return Markup(json.dumps(finite, allow_nan=False).replace("</", "<\\/"))
