"""Writes files of the site: pages from templates and what all pages load."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

PAGES = Path(__file__).parent / "pages"
ASSETS = ("site.js", "tabulator.min.js", "tabulator.min.css", "tabulator.LICENSE")


class Site:
    """The folder that is written, and the templates."""

    def __init__(self, out: Path, results: Path):
        self.out, self.results = out, results
        self.written: list[Path] = []
        self.templates = Environment(
            loader=FileSystemLoader([PAGES, PAGES.parents[1] / "display" / "templates"]),
            undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
        self.templates.filters["json"] = embed

    def write(self, name: str, template: str, title: str, **values: Any) -> None:
        values = {"figures": [], **values}
        page = self.templates.get_template(template).render(
            title=title, top="../" * name.count("/"), plots=bool(values["figures"]), **values)
        self.write_text(name, page)
        self.written.append(self.out / name)

    def write_text(self, name: str, text: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy_assets(self, further: Sequence[Path]) -> None:
        self.write_text("assets/plotly.min.js", get_plotlyjs())
        self.write_text("assets/site.css", self.templates.get_template("site.css.j2").render())
        for file in (*(PAGES / name for name in ASSETS), *further):
            shutil.copy(file, self.out / "assets" / file.name)


def embed(figure: Any) -> Markup:
    """Return JSON for a script element; nan and infinity become null."""
    text = json.dumps(figure, default=str)
    finite = json.loads(text, parse_constant=lambda name: None)
    # No `<`, which could end the element or open a comment in it.
    return Markup(json.dumps(finite, allow_nan=False).replace("<", "\\u003c"))
