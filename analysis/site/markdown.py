"""Renders a command's Markdown page for the site, with tables that site.js can sort."""

import html
import itertools
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from analysis.site import grids

# Records hold what workers say, so HTML in a page is text.
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
RELATIVE = re.compile(r'(src|href)="(?!https?:|#|/|\.\.)([^"]+)"')


def render(text: str, raw: str) -> Markup:
    """Render a page. Its relative links lead to files below `raw`."""
    tokens = MARKDOWN.parse(text)
    _label(tokens)
    page = str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
    page = RELATIVE.sub(rf'\g<1>="{html.escape(raw)}\g<2>"', page)
    page = page.replace("<table", '<div class="table"><table').replace("</table>", "</table></div>")
    return Markup(page)


def _label(tokens: list[Token]) -> None:
    """Write each cell's heading and number into the cell."""
    headings: list[str] = []
    column = 0
    for token, content in itertools.pairwise(tokens):
        if token.type == "table_open":
            headings = []
            token.attrSet("class", "grid")
        elif token.type == "th_open":
            headings.append(content.content)
        elif token.type == "tr_open":
            column = 0
        elif token.type == "td_open":
            token.attrSet("data-label", headings[column])
            value = grids.cell(content.content).value
            if value is not None:
                token.attrSet("data-value", str(value))
            column += 1
