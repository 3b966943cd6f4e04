"""Pages of results that are no campaign, or more than one: comparisons, bisections, explanations, studies, verdicts.

Each shows the text that its command wrote, with tables that sort, or else its tables and images.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.site import index, markdown
from analysis.site import tables as site_tables
from analysis.site.tables import Grid
from analysis.site.writer import Site

RAW = ("trials.csv", "windows.csv", "processes.csv", "counters.csv", "kernels.csv", "operators.csv", "phases.csv", "campaign.json",
       "SHA256SUMS")
REPORTS = ("report.html", "compare.html", "explain.html", "study.html")
MOST_ROWS = 2000  # of a table in a page; a longer one is a link to its CSV

Tables = list[tuple[str, Grid]]


def write_folder(site: Site, folder: Path, trials: Mapping[str, str], audits: Mapping[str, str]) -> None:
    """Write the page of a folder, and one of each part within it that has a text of its own.

    `trials` has the page of each trial where the folder is a campaign too, `audits` what the audit of each folder found.
    """
    cards = []
    for part in index.parts_of(folder):
        card = index.of_folder(part)
        card = replace(card, href=f"campaigns/{folder.name}/{'-'.join(part.relative_to(folder).parts)}.html")
        cards.append(site.pictured(card, part))
        audit = audits.get(part.relative_to(site.results).as_posix(), "")
        _write(site, part, card.href, tables=_compared(part, {}), parts=[], audit=audit)
    own = [] if trials and not (folder / "compare.csv").exists() else [*_compared(folder, trials), *_plain(folder)]
    _write(site, folder, f"campaigns/{folder.name}.html", tables=own, parts=cards, audit=audits.get(folder.name, ""))


def _write(site: Site, folder: Path, page: str, **shown: Any) -> None:
    """Write one page: `tables` and cards of `parts`, then the text that a command wrote, or images where there is none."""
    name = folder.relative_to(site.results).as_posix()
    raw = "../" * page.count("/") + f"results/{name}/"
    heading, _, text = index.text_of(folder).partition("\n")
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    images = [] if text else [f"plots/{path.name}" for path in sorted(folder.glob("plots/*.svg"))]
    rows = f"{folder.name}/index.html" if "campaign.json" in files and folder.parent == site.results else ""
    site.write(page, "folder.html.j2", heading.lstrip("# ") or folder.name, place=name, raw=raw, rows=rows, files=files,
               report=next((name for name in REPORTS if name in files), ""), images=images,
               text=markdown.render(text, raw, sortable=True), **shown)


def _compared(folder: Path, trials: Mapping[str, str]) -> Tables:
    """The verdicts of a comparison, each side's time with the page of its trial."""
    file = folder / "compare.csv"
    if not file.exists():
        return []
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    return [(file.name, site_tables.comparison(table, {trial: f"{folder.name}/{page}" for trial, page in trials.items()}))]


def _plain(folder: Path) -> Tables:
    """The tables of a folder that no text shows, as those of a verification and of a bisection."""
    if index.text_of(folder):
        return []
    tables = []
    for file in sorted(folder.glob("*.csv")):
        if file.name not in RAW and file.read_text(encoding="utf-8").strip():
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
            tables += [(file.name, site_tables.grid(table.map(_shortened)))] if len(table) <= MOST_ROWS else []
    return tables


def _shortened(text: str) -> str:
    """A number of many digits with three of them; other text as it is."""
    return f"{float(text):.3g}" if re.fullmatch(r"-?\d+\.\d{4,}(e[-+]\d+)?", text) else text
