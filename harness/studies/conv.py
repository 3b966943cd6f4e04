"""The convolution study: which layers are measured, and how exact each algorithm must be.

The layers are those of networks or of the sweep of fbcunn's paper. On a GPU the algorithms are
cuDNN's legacy ones; on a CPU they are oneDNN, unfolding and FFT.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import networks
from harness.errors import WrongUse
from harness.studies.study import Bench, Point

PASSES = ("forward", "backward_data", "backward_filter")
MATHS = ("fma", "tf32")
# cuDNN v2's networks.
NETWORKS = ("alexnet", "caffenet", "googlenet")
# A wrong result is off by 1. Measured on an H200: at most 6e-6 in fma and 3e-4 in tf32, but 9e-4 to
# 3e-3 for Winograd's transforms of 5x5.
TOLERANCES = {"fma": 1e-4, "tf32": 1e-2}
WINOGRAD_TOLERANCE = 1e-2
# arXiv 1412.7580, table 2: 8,232 layers, stride 1, no padding, input of y + k - 1.
SWEEP = {"n": (1, 16, 64, 128), "c": (1, 4, 16, 64, 96, 128, 256),
         "k": (1, 4, 16, 64, 96, 128, 256), "r": (3, 5, 7, 9, 11, 13),
         "y": (1, 2, 4, 8, 16, 32, 64)}
# For networks, and for the sweep, which has many more points.
WINDOW_SECONDS, ONCE_SECONDS = (0.002, 0.0005), (0.02, 0.001)
# Layers of the sweep on a CPU by default.
SAMPLE_CPU = 60
LARGEST_CPU_GFLOP = 5.0


def bench_of(points: Sequence[Point], device_kind: str) -> Bench:
    library = "cpu" if device_kind == "cpu" else "cudnn"
    return Bench("pytorch", f"runners.studies.{library}_convolutions", points)


def tolerance_of(point: Point, candidate: str) -> float:
    """Return the largest relative error of an algorithm that is timed.

    In fma it is below the error of TF32, except for Winograd's transforms.
    """
    winograd = candidate.startswith("WINOGRAD")
    return WINOGRAD_TOLERANCE if winograd else TOLERANCES[point["math"]]


def points_of(layers: Iterable[dict[str, int]], passes: Iterable[str], maths: Iterable[str],
              largest_gflop: float | None = None) -> list[Point]:
    """Return each layer in each pass and arithmetic; a point's name omits the usual values."""
    points = []
    for layer, kind, arithmetic in itertools.product(layers, passes, maths):
        usual = {"w": layer["h"], "s": layer["r"], "stride": 1, "padding": 0, "groups": 1}
        sizes = [f"{key[:2]}{value}" for key, value in layer.items() if value != usual.get(key)]
        if largest_gflop is None or gflop(layer) <= largest_gflop:
            points.append({"point": "-".join([*sizes, kind, arithmetic]), **layer, "pass": kind,
                           "math": arithmetic})
    return points


def part_of(points: list[Point], part: str) -> list[Point]:
    """Return the I-th of N parts of nearly equal work. Raises WrongUse."""
    number, _, count = part.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise WrongUse(f"--part {part}: write I/N with I from 1 to N, as in 2/4")
    return sorted(points, key=gflop, reverse=True)[int(number) - 1:: int(count)]


def gflop(point: dict[str, Any]) -> float:
    """Count the operations of a direct convolution, in 1e9."""
    p, q = ((point[edge] + 2 * point["padding"] - point[kernel]) // point["stride"] + 1
            for edge, kernel in ("hr", "ws"))
    products = point["n"] * point["k"] * p * q * point["c"] // point["groups"]
    return 2e-9 * int(products * point["r"] * point["s"])


def network_layers(batches: dict[str, int]) -> list[dict[str, int]]:
    """Return every distinct convolution of the networks."""
    layers: list[dict[str, int]] = []
    for name, batch in batches.items():
        network = networks.get(name)
        for layer in network.layers:
            if layer.op == "conv2d":
                (c, h, w), a = network.shape_of(layer.inputs[0]), layer.attributes
                shape = {"n": batch, "c": c, "h": h, "w": w, "k": a["filters"], "r": a["kernel"],
                         "s": a["kernel"], "stride": a["stride"], "padding": a["padding"],
                         "groups": a.get("groups", 1)}
                layers += [] if shape in layers else [shape]
    return layers


def sweep_layers(sample: int | None) -> list[dict[str, int]]:
    """Return the layers of the paper's sweep, or a seeded sample of them."""
    chosen = list(itertools.product(*SWEEP.values()))
    if sample is not None and sample < len(chosen):
        chosen = random.Random(0).sample(chosen, sample)
    return [{"n": n, "c": c, "h": y + r - 1, "w": y + r - 1, "k": k, "r": r, "s": r, "stride": 1,
             "padding": 0, "groups": 1} for n, c, k, r, y in chosen]
