"""The error of wrong use or input: the command line prints its message and exits with 2."""

import re

MOST_CHARACTERS = 480
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class WrongUse(Exception):
    """Bad input. The message names file and key, what is wrong, and the remedy."""


def install(extra: str) -> str:
    """Return the command that installs an optional part. dlbench is in no package index."""
    return f"run `.venv/bin/python -m pip install -e '.[{extra}]'` in dlbench's checkout"


def printable(text: str) -> str:
    """Escape what would steer a terminal or cannot be encoded, except ends of lines and tabs."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def brief(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a printable text of at most `most` characters: a long one loses its middle."""
    text = printable(text)
    end = most // 3
    return text if len(text) <= most else f"{text[:most - end - 5]} ... {text[-end:]}"
