"""Pages of results that are no single campaign: comparisons, bisections, explanations, studies.

Each page shows the text that its command wrote, with tables that sort, or else its tables and
images.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from analysis.records import packed
from analysis.site import grids, index, markdown
from analysis.site.grids import Grid
from analysis.site.writer import Site, is_large
from analysis.trials import caveats

RAW = ("trials.csv", caveats.FILE, "processes.csv", "campaign.json", "SHA256SUMS",
       *packed.RAW_TABLES)
MOST_ROWS = 2000  # of a table in a page; a longer one is a link to its CSV

Tables = list[tuple[str, Grid]]


def write_folder(site: Site, folder: Path, trials: Mapping[str, str],
                 audits: Mapping[str, str]) -> None:
    """Write the page of a folder, and one for each part within it that has a text of its own.

    `trials` has the page of each trial if the folder is a campaign too, `audits` what the audit of
    each folder found.
    """
    cards = []
    for part in index.parts_of(folder):
        inner = part.relative_to(folder).parts
        cards.append(replace(index.of_folder(part),
                             href=f"campaigns/{folder.name}/{'-'.join(inner)}.html"))
        audit = audits.get(part.relative_to(site.results).as_posix(), "")
        _write(site, part, cards[-1].href, tables=_compared(part, {}), parts=[], audit=audit)
    only_campaign = trials and not (folder / "compare.csv").exists()
    own = [] if only_campaign else [*_compared(folder, trials), *_plain(folder)]
    _write(site, folder, f"campaigns/{folder.name}.html", tables=own, parts=cards,
           audit=audits.get(folder.name, ""))


def raw_files(folder: Path) -> list[str]:
    """Return the names under which the raw files of a folder are there, gzipped or not."""
    found = [packed.find(folder / name) for name in RAW]
    return [file.name for file in found if file.exists() and not is_large(file)]


def _write(site: Site, folder: Path, page: str, **shown: Any) -> None:
    """Write one page: `tables`, cards of `parts`, then the command's text, or else its images."""
    name = folder.relative_to(site.results).as_posix()
    top = "../" * page.count("/")
    raw = f"{top}results/{name}/"
    heading, _, text = index.text_of(folder).partition("\n")
    here = sorted(path for path in folder.iterdir() if path.is_file())
    files, large = [path.name for path in here if not is_large(path)], \
        [path.name for path in here if is_large(path)]
    images = [] if text else [f"plots/{path.name}" for path in sorted(folder.glob("plots/*.svg"))]
    is_campaign = "campaign.json" in files and folder.parent == site.results
    site.write(page, "folder.html.j2", heading.lstrip("# ") or folder.name, place=name, raw=raw,
               rows=f"{folder.name}/index.html" if is_campaign else "", files=files, large=large,
               images=images,
               text=markdown.render(text, lambda link: _lead(site, folder, top, link)), **shown)


def _lead(site: Site, folder: Path, top: str, link: str) -> str:
    """Return where a link of a folder's page leads on the site, or "" if it has no such page."""
    if re.match(r"[a-z]+:|#|/", link):
        return link
    path, _, place = link.partition("#")
    target = (folder / unquote(path)).resolve()
    home = next((home for home in site.homes if target.is_relative_to(home.resolve())), None)
    if target == (site.results / "README.md").resolve():
        return f"{top}index.html"
    if home is None or not target.exists() or (is_large(target) and path[-4:] != ".svg"):
        return ""
    inner = target.relative_to(home.resolve())
    if inner.as_posix() in ("report.md", *index.TEXTS):
        is_campaign = (home / "campaign.json").exists() and inner.name == "report.md"
        return f"{top}campaigns/{home.name}{'/index.html' if is_campaign else '.html'}"
    return f"{top}results/{home.name}/{quote(inner.as_posix())}" + (f"#{place}" if place else "")


def _compared(folder: Path, trials: Mapping[str, str]) -> Tables:
    """Return the verdicts of a comparison; each time leads to the page of its trial."""
    file = folder / "compare.csv"
    if not file.exists():
        return []
    links = {trial: f"{folder.name}/{page}" for trial, page in trials.items()}
    return [(file.name, grids.comparison(packed.text_table(file), links))]


def _plain(folder: Path) -> Tables:
    """Return the tables of a folder without a text, such as a verification or a bisection."""
    if index.text_of(folder):
        return []
    tables = []
    for file in sorted(folder.glob("*.csv")):
        if file.name not in RAW and not is_large(file) and file.read_text(encoding="utf-8").strip():
            table = packed.text_table(file)
            if len(table) <= MOST_ROWS:
                tables.append((file.name, grids.grid(table.map(_shortened))))
    return tables


def _shortened(text: str) -> str:
    """Return a number of many digits with three of them, and other text unchanged."""
    return f"{float(text):.3g}" if re.fullmatch(r"-?\d+\.\d{4,}(e[-+]\d+)?", text) else text
