"""The documentation stays short: its length in all, and the length of each sentence."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")),
         *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
MOST_WORDS = 12_500
LONGEST_SENTENCE = 28


def sentences(text):
    """Each sentence of a page: also of a bullet or a table's cell, which has no full stop."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    # A list of columns counts as one word.
    text = re.sub(r"`[^`]+`(?:,\s+`[^`]+`)+", "`list`", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.)\s|.*\s\|\s)", text)
    cells = [cell for block in blocks for cell in re.split(r"\s\|\s", " ".join(block.split()))]
    return [part for cell in cells for part in re.split(r"(?<=[.?!])\W*\s", cell)]


def too_long(text):
    counts = {part: len(re.findall(r"\S*\w\S*", part)) for part in sentences(text)}
    return [part for part, count in counts.items() if count > LONGEST_SENTENCE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page):
    assert too_long(page.read_text(encoding="utf-8")) == []


def test_the_documentation_is_short():
    # Numbers and the bars of tables are no words.
    counts = [len(re.findall(r"\S*[^\W\d_]\S*", page.read_text(encoding="utf-8"))) for page in PAGES]
    assert sum(counts) <= MOST_WORDS


@pytest.mark.parametrize("frame", [
    "{}.", "- short\n- {}\n- short", "| a | {} |\n|---|---|", "**Bold.** {}", "[{}](page.md)",
    "1. {}\n2. short",
])
def test_a_long_sentence_is_found_in_bullets_and_cells_too(frame):
    words = " ".join(["word"] * (LONGEST_SENTENCE + 1))
    assert too_long(frame.format(words)) and not too_long(frame.format(words[5:]))
