"""Finds the links of a site that lead nowhere."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """What a page refers to, and the places within it that others may refer to."""

    def __init__(self, page: Path):
        super().__init__()
        self.found: list[str] = []
        self.places = {"", "top"}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.found.append(value)
            elif name == "id" and value:
                self.places.add(value)


def broken(site: Path, docs: Path | None = None) -> list[tuple[str, str]]:
    """Return (page, link) of each link of our pages to a missing file, page or place in a page.

    The documentation below docs/ may be built later, so its pages are those of its sources `docs`.
    """
    ours = [page for page in site.rglob("*.html")
            if page.relative_to(site).parts[0] not in ("results", "docs")]
    pages = {page.resolve(): Links(page) for page in ours}
    lost = []
    for page, links in pages.items():
        for link in dict.fromkeys(links.found):
            if not _leads(link, page, pages, site.resolve(), docs):
                lost.append((page.relative_to(site.resolve()).as_posix(), link))
    return lost


def _leads(link: str, page: Path, pages: dict[Path, Links], site: Path, docs: Path | None) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(site):
        return False
    inner = target.relative_to(site)
    if inner.parts[:1] == ("docs",):
        source = docs and (docs / inner.relative_to("docs")).with_suffix(".md")
        # mkdocs makes these two from the code.
        return not source or source.exists() or inner.stem in ("command-line", "suite-keys")
    if target in pages:
        return unquote(parts.fragment) in pages[target].places
    return target.is_file()
