"""The words that `dlbench study gemm`, `conv` and `layers` share on the command line."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Campaigns = Annotated[list[Path] | None, typer.Option("--campaign", metavar="DIR", help="A campaign whose kernels.csv shows what "
                                                      "frameworks really call.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Of a worker on a CPU; default: all cores.")]
Processes = Annotated[int, typer.Option(min=1, help="Repetitions in fresh processes; from three on there is an interval.")]
WindowSeconds = Annotated[float, typer.Option(min=0, help="Length of a timed window.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the study in DIR.")]

console = Console()


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def words(text: str) -> list[str]:
    """Split what is written with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
