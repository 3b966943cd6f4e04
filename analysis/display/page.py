"""The page of every report: a title and parts, written as HTML, as Markdown and as image files.

A report says what its page holds, `page.html.j2` and `page.md.j2` say how it looks. The HTML file
needs no other file: its figures and its style lie within it.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import matplotlib.figure
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.display.style import GRID, INK, styled

TEMPLATES = Path(__file__).parent / "templates"
# A plot's neutral colours become those of the page, which has a light and a dark scheme.
PAGE_COLOURS = {INK: "var(--ink)", GRID: "var(--grid)", "#ffffff": "none"}


@dataclass(frozen=True)
class Text:
    """A paragraph; a word in `backticks` is code. A note explains how to read something."""

    kind: ClassVar = "text"
    text: str
    note: bool = False


@dataclass(frozen=True)
class Table:
    """A table of texts. An empty one is not shown."""

    kind: ClassVar = "table"
    frame: pd.DataFrame


@dataclass(frozen=True)
class Figure:
    """A figure with the name of its files, unique in the page."""

    kind: ClassVar = "figure"
    name: str
    figure: matplotlib.figure.Figure

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @cached_property
    def svg(self) -> str:
        return draw_svg(self.figure)


@dataclass(frozen=True)
class Notes:
    """A list of sentences, set apart where they are warnings."""

    kind: ClassVar = "notes"
    items: Sequence[str]
    warning: bool = False


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    kind: ClassVar = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Details:
    """A long text or table that HTML folds away. Markdown shows the summary and says where it is."""

    kind: ClassVar = "details"
    summary: str
    content: str | pd.DataFrame
    place: str

    @property
    def is_table(self) -> bool:
        return isinstance(self.content, pd.DataFrame)


@dataclass(frozen=True)
class Files:
    """Links to files beside the page."""

    kind: ClassVar = "files"
    label: str
    paths: Sequence[str]


@dataclass(frozen=True)
class Section:
    """Parts under a heading."""

    kind: ClassVar = "section"
    heading: str
    parts: Sequence["Part"]


Part = Text | Table | Figure | Notes | Facts | Details | Files | Section


@dataclass(frozen=True)
class Page:
    title: str
    parts: Sequence[Part]


def tabled(heading: str, frame: pd.DataFrame | None, before: str = "", after: str = "") -> list[Part]:
    """Make the section of a table with notes above and below it; no section of a missing table."""
    if frame is None or frame.empty:
        return []
    notes = [[Text(text, note=True)] if text else [] for text in (before, after)]
    return [Section(heading, [*notes[0], Table(frame), *notes[1]])]


def write(page: Page, out: Path, name: str, images: bool = True) -> list[Path]:
    """Write the page as NAME.md and NAME.html and return every path, NAME.html last.

    Its figures become files in plots/ too, unless without `images`. Raises OSError.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = write_images(figures(page.parts), out) if images else []
    for suffix in ("md", "html"):
        paths.append(out / f"{name}.{suffix}")
        paths[-1].write_text(render(page, suffix), encoding="utf-8")
    return paths


def write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> list[Path]:
    """Write each table to tables/NAME.csv and return the paths. Raises OSError."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    paths = {out / "tables" / f"{name}.csv": table for name, table in tables.items()}
    for path, table in paths.items():
        table.to_csv(path, index=False, lineterminator="\n")
    return list(paths)


def write_images(drawn: Iterable[Figure], out: Path) -> list[Path]:
    """Write each figure to plots/NAME.svg and plots/NAME.png and return the paths."""
    (out / "plots").mkdir(parents=True, exist_ok=True)
    paths = []
    for each in drawn:
        svg, png = (out / "plots" / f"{each.name}.{suffix}" for suffix in ("svg", "png"))
        svg.write_text(each.svg, encoding="utf-8")
        each.figure.savefig(png, dpi=160)
        paths += [svg, png]
    return paths


def figures(parts: Sequence[Part]) -> list[Figure]:
    """Return the figures of a page's parts in their order."""
    found: list[Figure] = []
    for part in parts:
        if isinstance(part, Figure):
            found.append(part)
        elif isinstance(part, Section):
            found += figures(part.parts)
    return found


def render(page: Page, suffix: str) -> str:
    """Fill the template of `suffix`, html or md."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=suffix == "html",
        trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(markdown=markdown, inline=inline, prose=prose)
    return environment.get_template(f"page.{suffix}.j2").render(page=page)


def prose(text: str) -> Markup:
    """Set words in backticks as code; escape everything else."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@styled
def draw_svg(figure: matplotlib.figure.Figure) -> str:
    """Draw a figure as SVG with text as text.

    Verdana stands in for DejaVu Sans where that is not installed: it has the same widths.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana")


def inline(svg: str, name: str) -> Markup:
    """Prepare an SVG for the page: the page's colours, identifiers of its own, a width that scales."""
    svg = svg[svg.index("<svg"):]
    for colour, page in PAGE_COLOURS.items():
        svg = svg.replace(colour, page)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    label = name.replace("_", " ")
    return Markup(re.sub(
        r'width="([\d.]+)pt" height="[\d.]+pt"',
        lambda found: f'style="max-width: {1.4 * float(found[1]):.0f}px" role="img" aria-label="{label}"',
        svg, count=1))


def markdown(table: pd.DataFrame) -> str:
    """Write a table as Markdown."""
    def line(cells: Iterable[Any]) -> str:
        texts = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(texts)} |"

    rule = "|" + " --- |" * len(table.columns)
    return "\n".join([line(table.columns), rule, *map(line, table.itertuples(index=False))])
