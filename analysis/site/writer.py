"""Writes files of the site: pages from templates, what all pages load, and the words to search."""

import html
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

PAGES = Path(__file__).parent / "pages"
ASSETS = ("site.js", "tabulator.min.js", "tabulator.min.css", "tabulator.LICENSE")
CONTENT = re.compile(r"<main.*?>(.*)</main>", re.DOTALL)
MARKUP = re.compile(r"<script.*?</script>|<style.*?</style>|<tbody class=.raw.>.*?</tbody>|<[^>]*>",
                    re.DOTALL)
WORD = re.compile(r"[^\W_][\w.+=-]*[^\W_]")
IMAGE = re.compile(r'src="[./]*results/([^"]+[.]svg)"')
LARGE_BYTES = 2**18  # of a file that stays in the repository
NUMBER = re.compile(r"-?[\d.,+-]*")
LEAD = 180  # letters of a page that a search shows


class Site:
    """The folder that is written, the folders of results that it shows, and the templates."""

    def __init__(self, out: Path, homes: Sequence[Path]):
        self.out, self.homes = out, homes
        self.results = homes[0].parent
        self.written: list[Path] = []
        self.words: list[dict[str, str]] = []
        self.images: set[str] = set()
        self.templates = Environment(
            loader=FileSystemLoader([PAGES, PAGES.parents[1] / "display" / "templates"]),
            undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
        self.templates.filters["json"] = embed
        self.templates.filters["page"] = page_name

    def write(self, name: str, template: str, title: str, **values: Any) -> None:
        values = {"figures": [], **values}
        page = self.templates.get_template(template).render(
            title=title, top="../" * name.count("/"), plots=bool(values["figures"]), **values)
        self.write_text(name, page)
        self.written.append(self.out / name)
        self.images |= {unquote(image) for image in IMAGE.findall(page)}
        self.index(name, title, html.unescape(MARKUP.sub(" ", CONTENT.findall(page)[0])))

    def index(self, name: str, title: str, text: str) -> None:
        """Let the search find a page by the words of its text."""
        words = dict.fromkeys(WORD.findall(text.lower()))
        lead = " ".join(text.split()).removeprefix(title).strip()[:LEAD]
        self.words.append({"href": name, "title": title, "lead": lead, "words": " ".join(
            word for word in words if not NUMBER.fullmatch(word))})

    def write_search(self, docs: Path | None) -> None:
        """Write the search and its index, with the pages of the documentation in `docs`."""
        for page in sorted(docs.rglob("*.md")) if docs else ():
            text = page.read_text(encoding="utf-8")
            name = "docs/" + page.relative_to(docs or page).with_suffix(".html").as_posix()
            self.index(name, text.partition("\n")[0].lstrip("# "), re.sub(r"[#*`|]", "", text))
        self.write_text("assets/search.js", f"window.PAGES = {embed(self.words)};\n")
        self.write("search.html", "search.html.j2", "Search")

    def write_text(self, name: str, text: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy_results(self) -> None:
        """Copy the folders of results without large files and without plots that no page shows."""
        def left(folder: str, names: list[str]) -> set[str]:
            files = [Path(folder, name) for name in names]
            return {file.name for file in files
                    if (is_large(file) or file.suffix == ".svg")
                    and file.relative_to(self.results).as_posix() not in self.images}

        for home in self.homes:
            shutil.copytree(home, self.out / "results" / home.name, ignore=left)

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
    compact = json.dumps(finite, allow_nan=False, separators=(",", ":"))
    return Markup(compact.replace("<", "\\u003c"))


def is_large(file: Path) -> bool:
    """Return whether a file stays in the repository; pages of trials need those of campaigns."""
    needed = file.with_name("campaign.json").exists()
    return file.is_file() and file.stat().st_size > LARGE_BYTES and not needed


def page_name(text: str) -> str:
    """Return what names a file of a trial or a network."""
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "-", text)
