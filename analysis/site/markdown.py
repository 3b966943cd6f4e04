"""Renders a command's Markdown page for the site, with tables that site.js can sort."""

import html
import itertools
import re
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from analysis.site import grids

CAPTION = re.compile(r'(<table[^>]*?) data-caption="([^"]*)">')
# Records hold what workers say, so HTML in a page is text.
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
ANCHOR = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
SOURCE = re.compile(r'<img src="([^"]*)"')

Lead = Callable[[str], str]


def render(text: str, lead: Lead) -> Markup:
    """Render a page. `lead` turns its links into those of the site, or into "" for mere text."""
    tokens = MARKDOWN.parse(text)
    _describe(tokens)
    page = str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
    page = ANCHOR.sub(lambda found: _anchor(lead(html.unescape(found[1])), found[2]), page)
    page = SOURCE.sub(lambda found: _image(lead(html.unescape(found[1])) or found[1]), page)
    # A wide picture scrolls in its paragraph, so the keyboard has to reach that.
    page = page.replace("<p><img", '<p tabindex="0"><img')
    page = page.replace("<table", '<div class="table"><table').replace("</table>", "</table></div>")
    return Markup(CAPTION.sub(r"\1><caption>\2</caption>", page))


def _anchor(link: str, text: str) -> str:
    return f'<a href="{html.escape(link)}">{text}</a>' if link else text


def _image(source: str) -> str:
    return f'<img src="{html.escape(source)}"'


def _describe(tokens: list[Token]) -> None:
    """Give each table the heading above it as a caption, and each cell the number it sorts by."""
    heading = "Table"
    for token, content in itertools.pairwise(tokens):
        if token.type == "heading_open":
            heading = content.content
        elif token.type == "table_open":
            token.attrSet("class", "grid")
            token.attrSet("data-caption", heading)
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "td_open":
            cell = grids.cell(content.content)
            if cell.is_told:
                token.attrSet("data-value", str(cell.value))
