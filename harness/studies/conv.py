"""`dlbench study conv`: every algorithm of a library for the convolutions of networks, or for the sweep of fbcunn's paper.

It lists the layers and asks `harness.studies.study` to measure them: cuDNN's legacy algorithms on a GPU, oneDNN, unfolding and FFT
on a CPU. Tables and plots are `analysis.studies.conv`'s.
"""

import itertools
import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import networks
from harness.cli.compare import AllowDirty, Interpreter, Out
from harness.cli.options import Campaigns, Device, Processes, Resume, Threads, say, words
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.studies import study as studies
from harness.studies.gemm import batches_of
from harness.validation import did_you_mean

PASSES = ("forward", "backward_data", "backward_filter")
MATHS = ("fma", "tf32")
LAYERS_OF = ("alexnet", "caffenet", "googlenet")  # cuDNN v2's networks
# What is wrong is off by 1. Found on an H200: 6e-6 at most in fma, 3e-4 in tf32, but 9e-4 to 3e-3 for Winograd's transforms of 5x5.
TOLERANCES = {"fma": 1e-4, "tf32": 1e-2}
WINOGRAD_TOLERANCE = 1e-2
SWEEP = {  # arXiv 1412.7580, table 2: 8,232 layers, stride 1, no padding, input of y + k - 1
    "n": (1, 16, 64, 128), "c": (1, 4, 16, 64, 96, 128, 256), "k": (1, 4, 16, 64, 96, 128, 256), "r": (3, 5, 7, 9, 11, 13),
    "y": (1, 2, 4, 8, 16, 32, 64),
}
WINDOW_SECONDS, ONCE_SECONDS = (0.002, 0.0005), (0.02, 0.001)  # of networks and of the sweep, which has minutes for all
SAMPLE_CPU = 60  # of the sweep's layers on a CPU, unless told otherwise
LARGEST_CPU_GFLOP = 5.0


def conv(
    chosen: Annotated[str, typer.Option("--networks", help="With commas; alexnet, caffenet and googlenet if not given.")] = "",
    sweep: Annotated[bool, typer.Option("--sweep", help="fbcunn's sweep of 8,232 layers in place of networks.")] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Of the sweep only so many layers, drawn by a seed.")] = None,
    part: Annotated[str, typer.Option(metavar="I/N", help="Only the I-th of N parts, to use several devices.")] = "1/1",
    passes: Annotated[str, typer.Option(help="With commas.")] = ",".join(PASSES),
    math: Annotated[str, typer.Option(help="fma, tf32 or both; on a CPU only fma.")] = "",
    batch: Annotated[int | None, typer.Option(min=1, help="Default: the campaign's, else the middle one of the network's.")] = None,
    largest: Annotated[float | None, typer.Option(metavar="GFLOP", help="Leave larger ones out; default 5 on a CPU.")] = None,
    campaigns: Campaigns = None,
    processes: Processes = 1,
    window_seconds: Annotated[float | None, typer.Option(min=0, help="Of a window; default 0.002, in a sweep 0.0005.")] = None,
    windows: Annotated[int, typer.Option(min=1, help="Timed windows of an algorithm.")] = 3,
    device: Device = "auto",
    threads: Threads = None,
    out: Out = None,
    resume: Resume = False,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Time every convolution algorithm, with its workspace and its error against float64."""
    from analysis.studies import (
        conv as conv_study,  # here, as in every verb: drawing takes a second to import
    )

    place = studies.place_of(device, threads, named(interpreter), allow_dirty)
    cpu = place.device_kind == "cpu"
    batches = {} if sweep else batches_of(words(chosen) or list(LAYERS_OF), batch, campaigns or ())
    layers = _sweep_layers(sample or (SAMPLE_CPU if cpu else None)) if sweep else _network_layers(batches)
    kinds = known(words(passes), PASSES, "--passes"), known(words(math) or MATHS[:1 if cpu or sweep else 2], MATHS, "--math")
    most = largest or (LARGEST_CPU_GFLOP if cpu else None)
    points = part_of([point for point in points_of(layers, *kinds) if most is None or gflop(point) <= most], part)
    module = "runners.studies.cpu_convolutions" if cpu else "runners.studies.cudnn_convolutions"
    study = studies.Study("conv", [studies.Bench("pytorch", module, points)],
                          studies.Effort(processes, windows, window_seconds or WINDOW_SECONDS[sweep], ONCE_SECONDS[sweep]),
                          {"batches": batches, "sweep": sweep, "sample": sample, "part": part, "largest_gflop": most},
                          tolerance_of)
    folder = out or Path("results") / f"conv-{datetime.now():%Y%m%d-%H%M%S}"
    say(f"{len(points)} convolutions in {processes} processes, records in {folder}")
    studies.run(study, place, folder, resume, say)
    say(f"Page: {conv_study.write([folder], folder, campaigns or [])}")


def tolerance_of(point: studies.Point, candidate: str) -> float:
    """The relative error with which an algorithm may be timed: in fma less than TF32's, but for Winograd's transforms."""
    return WINOGRAD_TOLERANCE if candidate.startswith("WINOGRAD") else TOLERANCES[point["math"]]


def points_of(layers: Iterable[dict[str, int]], passes: Iterable[str], maths: Iterable[str]) -> Iterator[studies.Point]:
    """Each layer in each pass and arithmetic; a name leaves out what is as usual."""
    for layer, kind, arithmetic in itertools.product(layers, passes, maths):
        usual = {"w": layer["h"], "s": layer["r"], "stride": 1, "padding": 0, "groups": 1}
        sizes = [f"{key[:2]}{value}" for key, value in layer.items() if value != usual.get(key)]
        yield {"point": "-".join([*sizes, kind, arithmetic]), **layer, "pass": kind, "math": arithmetic}


def part_of(points: list[studies.Point], part: str) -> list[studies.Point]:
    """The I-th of N parts of nearly equal work: every N-th point from the largest down. Raises WrongUse."""
    number, _, count = part.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise WrongUse(f"--part {part}: write I/N with I from 1 to N, as in 2/4")
    return sorted(points, key=gflop, reverse=True)[int(number) - 1:: int(count)]


def gflop(point: dict[str, Any]) -> float:
    """Operations of a direct convolution, in 1e9."""
    p, q = ((point[edge] + 2 * point["padding"] - point[kernel]) // point["stride"] + 1 for edge, kernel in ("hr", "ws"))
    return 2e-9 * int(point["n"] * point["k"] * p * q * point["c"] // point["groups"] * point["r"] * point["s"])


def known(chosen: Iterable[str], names: tuple[str, ...], option: str) -> list[str]:
    """Return what was chosen; raises WrongUse with the closest name where one is unknown."""
    for name in chosen:
        if name not in names:
            raise WrongUse(f"{option}: unknown {name}{did_you_mean(name, names)}")
    return list(chosen)


def _network_layers(batches: dict[str, int]) -> list[dict[str, int]]:
    """Every distinct convolution of the networks."""
    layers = []
    for name, batch in batches.items():
        network = networks.get(name)
        for layer in network.layers:
            if layer.op == "conv2d":
                (c, h, w), a = network.shape_of(layer.inputs[0]), layer.attributes
                shape = {"n": batch, "c": c, "h": h, "w": w, "k": a["filters"], "r": a["kernel"], "s": a["kernel"],
                         "stride": a["stride"], "padding": a["padding"], "groups": a.get("groups", 1)}
                layers += [] if shape in layers else [shape]
    return layers


def _sweep_layers(sample: int | None) -> list[dict[str, int]]:
    """The layers of the paper's sweep, or so many of them drawn by a seed."""
    chosen = [dict(zip(SWEEP, values, strict=True)) for values in itertools.product(*SWEEP.values())]
    if sample is not None and sample < len(chosen):
        chosen = random.Random(0).sample(chosen, sample)
    return [{"n": each["n"], "c": each["c"], "h": each["y"] + each["r"] - 1, "w": each["y"] + each["r"] - 1, "k": each["k"],
             "r": each["r"], "s": each["r"], "stride": 1, "padding": 0, "groups": 1} for each in chosen]
