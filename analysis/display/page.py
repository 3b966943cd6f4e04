"""The page of every report: a title and parts, written as HTML, as Markdown and as image files.

A report says what its page holds; `page.html.j2` and `page.md.j2` say how it looks. The HTML file
needs no other file: its figures and its style lie within it.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.figure
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.display.style import GRID, INK, styled

TEMPLATES = Path(__file__).parent / "templates"
# A plot's neutral colours become those of the page, which has a light and a dark scheme.
PAGE_COLOURS = {INK: "var(--ink)", GRID: "var(--grid)", "#ffffff": "none"}
PLACES = re.compile(r'(?<= [dxy]=")[^"]*')
FURTHER_DIGITS = re.compile(r"(?<=\.\d\d)\d+")


class Text(NamedTuple):
    """A paragraph; a word in `backticks` is code. A note explains how to read something."""

    text: str
    note: bool = False


class Table(NamedTuple):
    """A table of texts; an empty one is not shown."""

    frame: pd.DataFrame


class Figure(NamedTuple):
    """The name of a figure's files, unique in the page, and what draws it."""

    name: str
    draw: Callable[[], matplotlib.figure.Figure]


class Notes(NamedTuple):
    """A list of sentences, set apart if they are warnings."""

    items: Sequence[str]
    warning: bool = False


class Facts(NamedTuple):
    """Names with their values."""

    pairs: Sequence[tuple[str, str]]


class Details(NamedTuple):
    """A long text or table that HTML folds away. Markdown gives its summary and its place."""

    summary: str
    content: str | pd.DataFrame
    place: str


class Files(NamedTuple):
    """Links to files beside the page."""

    label: str
    paths: Sequence[str]


class Section(NamedTuple):
    """Parts under a heading."""

    heading: str
    parts: Sequence[Any]


Part = Text | Table | Figure | Notes | Facts | Details | Files | Section


class Page(NamedTuple):
    title: str
    parts: Sequence[Part]


def tabled(heading: str, frame: pd.DataFrame | None, before: str = "",
           after: str = "") -> list[Section]:
    """Make the section of a table with notes above and below it; none of a missing table."""
    if frame is None or frame.empty:
        return []
    notes = [[Text(text, note=True)] if text else [] for text in (before, after)]
    return [Section(heading, [*notes[0], Table(frame), *notes[1]])]


def write(page: Page, out: Path, name: str, images: bool = True) -> list[Path]:
    """Write the page as NAME.md and NAME.html and return every path, NAME.html last.

    With `images`, its figures become files in plots/ too; without, none is drawn. Raises OSError.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = list(_figures(page.parts))
    drawn = dict.fromkeys((each.name for each in found), "<svg></svg>")
    paths = []
    for each in found if images else ():
        figure = each.draw()
        drawn[each.name] = draw_svg(figure)
        (out / "plots").mkdir(exist_ok=True)
        svg, png = (out / "plots" / f"{each.name}.{suffix}" for suffix in ("svg", "png"))
        svg.write_text(drawn[each.name], encoding="utf-8")
        # Both files have one layout; finding it takes half of the time.
        figure.set_layout_engine("none")
        figure.savefig(png, dpi=160)
        paths += [svg, png]
    for suffix in ("md", "html"):
        environment = Environment(
            loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, autoescape=suffix == "html")
        environment.filters.update(kind=lambda part: type(part).__name__, markdown=markdown,
                                   cell=cell, ended=ended, inline=inline, prose=prose)
        text = environment.get_template(f"page.{suffix}.j2").render(page=page, drawn=drawn)
        paths.append(out / f"{name}.{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> list[Path]:
    """Write each table to tables/NAME.csv and return the paths. Raises OSError."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    paths = {out / "tables" / f"{name}.csv": table for name, table in tables.items()}
    for path, table in paths.items():
        table.to_csv(path, index=False, lineterminator="\n")
    return list(paths)


@styled
def draw_svg(figure: matplotlib.figure.Figure) -> str:
    """Draw a figure as SVG with text as text.

    Verdana stands in for DejaVu Sans where that is not installed: it has the same widths. Places
    are rounded to a hundredth of a point, which makes the file a tenth smaller.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg",
                   metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = PLACES.sub(lambda found: FURTHER_DIGITS.sub("", found[0]), buffer.getvalue())
    return svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana")


def inline(svg: str, name: str) -> Markup:
    """Fit an SVG into the page: the page's colours, identifiers of its own, a width that scales."""
    svg = svg[svg.index("<svg"):]
    for colour, page in PAGE_COLOURS.items():
        svg = svg.replace(colour, page)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    size = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
    return Markup(size.sub(lambda found: (
        f'style="max-width: {1.4 * float(found[1]):.0f}px" role="img" '
        f'aria-label="{name.replace("_", " ")}"'), svg, count=1))


def markdown(table: pd.DataFrame) -> str:
    """Write a table as Markdown."""
    def line(cells: Iterable[Any]) -> str:
        return f"| {' | '.join(map(cell, cells))} |"

    rule = "|" + " --- |" * len(table.columns)
    return "\n".join([line(table.columns), rule, *map(line, table.itertuples(index=False))])


def cell(value: Any) -> str:
    """Write a value as a cell of a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def ended(text: str) -> str:
    """End a sentence with a full stop where it has none."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def prose(text: str) -> Markup:
    """Set words in backticks as code; escape everything else."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _figures(parts: Sequence[Part]) -> Iterator[Figure]:
    for part in parts:
        if isinstance(part, Figure):
            yield part
        elif isinstance(part, Section):
            yield from _figures(part.parts)
