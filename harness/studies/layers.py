"""The layers study: which single layers are measured at which size, and how exact they must be."""

from collections.abc import Sequence
from typing import Any

from harness.errors import WrongUse
from harness.studies.study import Bench, Point, known

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "mxnet", "paddle")
# Frameworks that train networks here but have no place in this study.
REFUSED = {
    "cntk": "its functions have no common way to give the gradient of one layer's output with "
            "respect to its input",
    "caffe": "its layers run within a network only: pycaffe times a net, not a layer",
}
# Layers that have a layout.
IMAGES = ("conv1d", "conv3d", "max_pool", "avg_pool", "lp_pool", "lrn", "batch_norm")
# AlexNet's first.
POOL = {"batch": 128, "channels": 96, "size": 55, "kernel": 3, "stride": 2}
LAYERS: dict[str, dict[str, Any]] = {
    "conv1d": {"batch": 64, "channels": 256, "size": 512, "kernel": 5},
    "conv3d": {"batch": 16, "channels": 64, "size": 16, "kernel": 3},
    "max_pool": POOL, "avg_pool": POOL, "lp_pool": POOL,
    "lrn": {"batch": 128, "channels": 96, "size": 55},
    "dropout": {"batch": 128, "channels": 4096, "rate": 0.5},
    "softmax": {"batch": 1024, "channels": 10000},
    "batch_norm": {"batch": 64, "channels": 64, "size": 56},
    "ctc": {"batch": 32, "size": 150, "classes": 29, "labels": 30},
    "embedding": {"batch": 64, "channels": 650, "size": 35, "classes": 10000},
    "hierarchical_softmax": {"batch": 256, "channels": 650, "classes": 10000},
}
# A CPU computes this share of the batch.
CPU_SHARE = 16
PRECISIONS = ("fp32", "fp16")
LAYOUTS = ("nchw", "nhwc")
# The same as for a gradient in a network; measured 2e-6 in fp32.
TOLERANCES = {"fp32": 2e-4, "fp16": 2e-2}
# CTC's logarithms near -500 have an ulp of 3e-5; measured 1e-4 to 1.6e-4 in three frameworks.
CTC_FACTOR = 10


def points_of(names: Sequence[str], layouts: Sequence[str], precisions: Sequence[str]
              ) -> list[Point]:
    """Return each layer in each precision and, if it has one, in each layout ("none" elsewhere)."""
    known(names, LAYERS, "--layers")
    known(layouts, LAYOUTS, "--layouts")
    known(precisions, PRECISIONS, "--precisions")
    return [{"point": "-".join([name, layout, precision]).replace("-none", ""), "layer": name,
             "layout": layout, "precision": precision, **LAYERS[name]}
            for name in names for layout in (layouts if name in IMAGES else ["none"])
            for precision in precisions]


def resize(points: Sequence[Point], batch: int | None, device_kind: str) -> list[Point]:
    """Return the points with `batch`, or with each layer's own; a CPU gets a share of it."""
    share = CPU_SHARE if device_kind == "cpu" else 1
    return [{**point, "batch": batch or max(2, point["batch"] // share)} for point in points]


def tolerance_of(point: Point, _candidate: str = "") -> float:
    """Return the largest relative error of an output or gradient that is timed."""
    return TOLERANCES[point["precision"]] * (CTC_FACTOR if point["layer"] == "ctc" else 1)


def bench_of(framework: str, points: Sequence[Point], threads: int) -> Bench:
    """Return a framework's share; fp32 means IEEE fp32, and NPROC sets XLA's threads on a CPU."""
    variables = {"NVIDIA_TF32_OVERRIDE": "0", "NPROC": str(threads)}
    return Bench(framework, f"runners.studies.layers.bench_{framework}", points, variables)


def known_frameworks(names: Sequence[str]) -> list[str]:
    """Return the frameworks; raises WrongUse for one that is not in this study."""
    for name in names:
        if name in REFUSED:
            raise WrongUse(f"--frameworks: {name} is not in this study: {REFUSED[name]}")
    return known(names, FRAMEWORKS, "--frameworks")
