"""Writes files of the site: pages from templates, what all pages load, pictures. What stands on a page is decided elsewhere."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis.site import index
from analysis.site.index import Card

PAGES = Path(__file__).parent / "pages"
TEMPLATES = Path(__file__).parents[1] / "display" / "templates"


class Site:
    """The folder that is written, and the templates."""

    def __init__(self, out: Path, results: Path):
        self.out, self.results = out, results
        self.written: list[Path] = []
        self.templates = Environment(loader=FileSystemLoader([PAGES, TEMPLATES]), undefined=StrictUndefined,
                                     autoescape=True, trim_blocks=True, lstrip_blocks=True)
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

    def copy_picture(self, file: Path) -> str:
        """Copy a picture beside the pages where there is one, and return its place."""
        if not file.exists():
            return ""
        shutil.copy(file, self.out / "assets" / file.name)
        return f"assets/{file.name}"

    def pictured(self, card: Card, folder: Path) -> Card:
        """The card with a small picture of what its folder holds."""
        place = "assets/pictures/" + card.href.removeprefix("campaigns/").replace("/", "-").removesuffix(".html") + ".png"
        return replace(card, picture=place) if index.draw_picture(folder, self.out / place) else card


def embed(figure: Any) -> Markup:
    """JSON that may stand within a script element; numbers that are none become null."""
    finite = json.loads(json.dumps(figure, default=str), parse_constant=lambda name: None)
    return Markup(json.dumps(finite, allow_nan=False).replace("</", "<\\/"))
