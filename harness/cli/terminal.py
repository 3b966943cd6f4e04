"""What all commands print with, and how a stopped one says how to go on."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from harness.campaign.events import Listener
from harness.errors import printable
from harness.records import lock


class Terminal(Console):
    """Prints text without what would steer the terminal, and without emoji."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


console = Terminal(emoji=False)


def say(text: str, style: str | None = None) -> None:
    """Print a line as it is: without markup and without breaking it."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def dim(text: str) -> None:
    say(text, "dim")


class Notes(Listener):
    """Prints a campaign's notes, such as an environment being built."""

    def note(self, text: str) -> None:
        dim(text)


def new_folder(name: str) -> Path:
    """Name a folder under results/ after what writes it and the time."""
    return Path("results") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise WrongUse, at once if possible, if the block cannot write into `folder`."""
    lock.probe(folder)
    with lock.writing(folder, measures=False):
        yield


@contextmanager
def interruptible(folder: Path, *options: str) -> Iterator[None]:
    """On Ctrl-C, print the command that goes on with the records in `folder`, and exit with 1.

    That is the present command with `options`.
    """
    try:
        yield
    except KeyboardInterrupt:
        words = [word for word in sys.argv[1:] if word not in options]
        if not any(word.partition("=")[0] == "--out" for word in words):
            words += ["--out", str(folder)]
        command = shlex.join(["dlbench", *words, *options])
        say(f"\nStopped; every finished process is kept. Go on with: {command}")
        raise typer.Exit(1) from None
