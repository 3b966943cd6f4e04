"""`dlbench study pipelines`: from JPEG files and H.264 video to a network's answers."""

import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import MOST_COUNT, WindowSeconds, numbers, words
from harness.cli.studies.study import OperationOptions, measure
from harness.cli.terminal import say
from harness.errors import WrongUse
from harness.studies import pipelines
from harness.studies.pipelines_judge import Preparation
from harness.studies.study import Effort, Study


@dataclass(frozen=True, kw_only=True)
class PipelinesOptions(OperationOptions):
    loaders: Annotated[str, typer.Option(
        help=f"With commas: {', '.join(pipelines.LOADERS)}. Default: all but the last three.")] = ""
    sources: Annotated[str, typer.Option(help="With commas.")] = ",".join(pipelines.SOURCES)
    images: Annotated[str, typer.Option(
        help="auto, cifar10-jpeg or drawn; auto draws where cifar10-jpeg is not here.")] = "auto"
    network: Annotated[str, typer.Option(
        help="A network of colour images, as resnet56 or resnet50.")] = "resnet8"
    frames: Annotated[int, typer.Option(
        min=2, max=10_000, help="Of a source; a step is all of them.")] = 32
    batch: Annotated[int, typer.Option(min=1, max=MOST_COUNT)] = 8
    size: Annotated[str, typer.Option(
        metavar="WIDTHxHEIGHT", help="Of what is drawn.")] = "320x240"
    streams: Annotated[str, typer.Option(
        help="Of video, each decoded by a thread. With commas.")] = "1,2,4"
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print the points; start nothing.")] = False
    window_seconds: WindowSeconds = 0.2


def study_pipelines(options: PipelinesOptions) -> None:
    """Time decoding, resizing, normalising and inference of images and video, alone and together.

    Pixels and answers of every frame are checked first.
    """
    grid = pipelines.Grid(
        options.network, pipelines.chosen(words(options.loaders)), words(options.sources),
        options.images, options.frames, options.batch, _size(options.size),
        numbers(options.streams, "--streams"))
    points = pipelines.points_of(grid)
    place = options.place(pipelines.frameworks_of(points), "inference")
    if options.dry_run:
        for point in points:
            say("  ".join(f"{key}={value}" for key, value in point.items() if key != "point"))
        say(f"{len(points)} points in {options.processes} processes")
        return
    effort = Effort(options.processes, window_seconds=options.window_seconds, once_seconds=5.0)
    with tempfile.TemporaryDirectory(prefix="dlbench-pipelines-") as kept:
        folder = Path(kept)
        preparation = Preparation(grid, points, folder)
        study = Study("pipelines", pipelines.benches_of(points, folder), effort,
                      {"size": list(grid.size), "images": grid.images}, lambda *_: math.nan,
                      prepare=preparation.prepare, faults=preparation.faults)
        measure(study, place, options, "pipelines")


def _size(text: str) -> tuple[int, int]:
    """Read a size as 320x240. Raises WrongUse."""
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    if not found or min(map(int, found.groups())) < 16:
        raise WrongUse(f"--size {text}: write width and height of at least 16, as in 320x240")
    return int(found[1]), int(found[2])
