"""The pipelines study: which loaders and sources are measured.

A point is a source, a loader before a framework's engine, and a number of streams.
`pipelines_judge` prepares what they are compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networks
from harness.errors import WrongUse
from harness.studies import media
from harness.studies.study import Bench, Point, known
from networks import Network

SOURCES = ("jpeg", "video")
IMAGES = ("auto", media.CIFAR, "drawn")
MODULES = {framework: f"runners.studies.pipelines.bench_{name}" for framework, name in (
    ("pytorch_media", "pytorch"), ("tensorflow", "tensorflow"),
    ("onnxruntime_dali", "onnxruntime"))}


@dataclass(frozen=True)
class Loader:
    """A loader's framework, sources and filter (of `pixels.FILTERS`).

    `asked` ones are measured only where they are named.
    """

    framework: str
    sources: tuple[str, ...]
    filter: str = "triangle"
    asked: bool = False

    def filter_of(self, shrinks: bool) -> str:
        """Return the filter that it declares: that of areas is for images that shrink."""
        return self.filter if shrinks or self.filter != "area" else "bilinear"


LOADERS: Mapping[str, Loader] = {
    "pillow": Loader("pytorch_media", ("jpeg",)),
    "pyav": Loader("pytorch_media", ("video",)),
    "torch": Loader("pytorch_media", SOURCES),
    "opencv": Loader("pytorch_media", SOURCES, "area"),
    "tensorflow": Loader("tensorflow", ("jpeg",)),
    "dali": Loader("onnxruntime_dali", ("jpeg",), "triangle_repeated"),
    "tensorflow_default": Loader("tensorflow", ("jpeg",), asked=True),
    "torchcodec": Loader("pytorch_media", ("video",), asked=True),
    "pynvvideocodec": Loader("pytorch_media", ("video",), asked=True)}


@dataclass(frozen=True)
class Grid:
    """What is measured: `size` is (width, height) of what is drawn; video has several `streams`."""

    network: str
    loaders: Sequence[str]
    sources: Sequence[str] = SOURCES
    images: str = "auto"
    frames: int = 32
    batch: int = 8
    size: tuple[int, int] = (320, 240)
    streams: Sequence[int] = (1,)


def chosen(loaders: Sequence[str]) -> list[str]:
    """Return the loaders named, or all that need not be. Raises WrongUse."""
    return known(loaders, LOADERS, "--loaders") or [
        name for name, loader in LOADERS.items() if not loader.asked]


def network_of(name: str) -> Network:
    """Return a network of colour images. Raises WrongUse for another."""
    known([name], [*networks.names(), *networks.names(small=True)], "--network")
    network = networks.get(name)
    if len(network.input_shape) != 3 or network.input_shape[0] != 3:
        raise WrongUse(f"--network {name}: it takes {network.input_shape}, not colour images; "
                       "name resnet56 or resnet50")
    return network


def points_of(grid: Grid) -> list[Point]:
    """Return a point for each source, loader and number of streams. Raises WrongUse."""
    known(grid.sources, SOURCES, "--sources")
    known([grid.images], IMAGES, "--images")
    if grid.frames % grid.batch:
        raise WrongUse(f"--frames {grid.frames} --batch {grid.batch}: whole batches only; "
                       f"write --frames {grid.batch * max(1, round(grid.frames / grid.batch))}")
    if any(length % 2 for length in grid.size):
        raise WrongUse("--size: H.264 halves chroma; write even numbers, as in 320x240")
    height, width = network_of(grid.network).input_shape[1:]
    found = []
    for kind in dict.fromkeys(grid.sources):
        source = media.images_here(grid.images) if kind == "jpeg" else kind
        shrinks = source != media.CIFAR and (grid.size[0] > width and grid.size[1] > height)
        for name in grid.loaders:
            for streams in grid.streams if kind == "video" else (1,):
                if kind in LOADERS[name].sources:
                    found.append({
                        "point": f"{source}-{name}-s{streams}", "source": source, "loader": name,
                        "filter": LOADERS[name].filter_of(shrinks), "streams": streams,
                        "frames": grid.frames, "batch": grid.batch, "network": grid.network})
    if not found:
        raise WrongUse(f"none of {', '.join(grid.loaders)} reads {', '.join(grid.sources)}: "
                       "name others with --loaders or --sources")
    return found


def frameworks_of(points: Sequence[Point]) -> list[str]:
    """Return the frameworks whose environments the loaders live in."""
    return list(dict.fromkeys(LOADERS[point["loader"]].framework for point in points))


def benches_of(points: Sequence[Point], folder: Path) -> list[Bench]:
    """Return each framework's share; its workers find what is prepared in `folder`."""
    variables = {"NVIDIA_TF32_OVERRIDE": "0", "DLBENCH_PIPELINES": str(folder)}
    return [Bench(name, MODULES[name],
                  [point for point in points if LOADERS[point["loader"]].framework == name],
                  variables) for name in frameworks_of(points)]
