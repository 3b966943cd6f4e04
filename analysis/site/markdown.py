"""Markdown as pages of the site: its tables get what site.js needs to sort them and a phone to show them, its links lead on."""

import html
import itertools
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from analysis.site import tables

MARKDOWN = MarkdownIt("commonmark").enable("table")


def render(text: str, raw: str, sortable: bool = False) -> Markup:
    """Render a page. Without `raw` its links are to other pages of docs/, else to files below `raw`."""
    tokens = MARKDOWN.parse(text)
    _label(tokens, sortable)
    page = str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
    page = re.sub(r'(src|href)="(?!https?:|#|/|\.\.)([^"]+)"', rf'\g<1>="{html.escape(raw)}\g<2>"', page) if raw else \
        re.sub(r'href="([\w-]+)\.md(#[\w-]*)?"', lambda found: f'href="{found[1]}.html{found[2] or ""}"', page)
    return Markup(page.replace("<table", '<div class="table"><table').replace("</table>", "</table></div>"))


def _label(tokens: list[Token], sortable: bool) -> None:
    """Write each cell's heading and number into the cell."""
    headings: list[str] = []
    column = 0
    for token, content in itertools.pairwise(tokens):
        if token.type == "table_open":
            headings = []
            if sortable:
                token.attrSet("class", "grid")
        elif token.type == "th_open":
            headings.append(content.content)
        elif token.type == "tr_open":
            column = 0
        elif token.type == "td_open":
            token.attrSet("data-label", headings[column])
            value = tables.cell(content.content).value
            if value is not None:
                token.attrSet("data-value", str(value))
            column += 1
