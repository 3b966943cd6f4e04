"""`dlbench study layers`: one layer at a time over the frameworks, forward and backward, equal to a reference first.

It says which layers at which size, and asks `harness.studies.study` to measure them in each framework's worker; tables and plots are
`analysis.studies.layers`'s.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.compare import AllowDirty, Interpreter, Out
from harness.cli.options import Device, Processes, Resume, Threads, WindowSeconds, say, words
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.studies import study as studies
from harness.studies.conv import known

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "mxnet", "paddle")
REFUSED = {  # frameworks that train networks here and have no place in this study
    "cntk": "its functions have no common way to give the gradient of one layer's output with respect to its input",
    "caffe": "its layers run within a network only: pycaffe times a net, not a layer",
}
IMAGES = ("conv1d", "conv3d", "max_pool", "avg_pool", "lp_pool", "lrn", "batch_norm")  # layers that have a layout
POOL = {"batch": 128, "channels": 96, "size": 55, "kernel": 3, "stride": 2}  # AlexNet's first
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
CPU_SHARE = 16  # of the batch, on a CPU
PRECISIONS = ("fp32", "fp16")
LAYOUTS = ("nchw", "nhwc")
TOLERANCES = {"fp32": 2e-4, "fp16": 2e-2}  # that of a gradient in a network; found 2e-6 in fp32
CTC_TOLERANCE = 10  # times: its logarithms near -500 have an ulp of 3e-5; found 1e-4 to 1.6e-4 in three frameworks


def layers(
    chosen: Annotated[str, typer.Option("--layers", help="With commas; all if not given.")] = "",
    frameworks_: Annotated[str, typer.Option("--frameworks", help="With commas.")] = ",".join(FRAMEWORKS),
    precisions: Annotated[str, typer.Option(help="With commas; default fp32,fp16, on a CPU fp32.")] = "",
    layouts: Annotated[str, typer.Option(help="With commas.")] = ",".join(LAYOUTS),
    batch: Annotated[int | None, typer.Option(min=2, help="Default: the layer's own, a sixteenth of it on a CPU.")] = None,
    processes: Processes = 3,
    window_seconds: WindowSeconds = 0.01,
    device: Device = "auto",
    threads: Threads = None,
    out: Out = None,
    resume: Resume = False,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Time single layers over the frameworks: outputs and gradients checked, forward and backward, layouts and precisions."""
    from analysis.studies import (
        layers as layers_study,  # here, as in every verb: drawing takes a second to import
    )

    place = studies.place_of(device, threads, named(interpreter), allow_dirty)
    cpu = place.device_kind == "cpu"
    points = points_of(known(words(chosen) or LAYERS, tuple(LAYERS), "--layers"), known(words(layouts), LAYOUTS, "--layouts"),
                       known(words(precisions) or PRECISIONS[:1 if cpu else 2], PRECISIONS, "--precisions"))
    share = CPU_SHARE if cpu else 1
    sized = [{**point, "batch": batch or max(2, point["batch"] // share)} for point in points]
    benches = [bench_of(name, sized, place.threads) for name in _known_frameworks(words(frameworks_))]
    study = studies.Study("layers", benches, studies.Effort(processes=processes, window_seconds=window_seconds),
                          {"refused": REFUSED}, tolerance_of)
    folder = out or Path("results") / f"layers-{datetime.now():%Y%m%d-%H%M%S}"
    say(f"{len(sized)} layers in {len(benches)} frameworks and {processes} processes, records in {folder}")
    studies.run(study, place, folder, resume, say)
    say(f"Page: {layers_study.write([folder], folder)}")


def points_of(names: list[str], layouts: list[str], precisions: list[str]) -> list[studies.Point]:
    """Each layer in each precision, and where it has one in each layout ("none" elsewhere)."""
    return [{"point": "-".join(filter(None, [name, layout if name in IMAGES else "", precision])), "layer": name,
             "layout": layout if name in IMAGES else "none", "precision": precision, **LAYERS[name]}
            for name in names for layout in (layouts if name in IMAGES else layouts[:1]) for precision in precisions]


def tolerance_of(point: studies.Point, _candidate: str = "") -> float:
    """Largest relative error of an output or gradient that is timed."""
    return TOLERANCES[point["precision"]] * (CTC_TOLERANCE if point["layer"] == "ctc" else 1)


def bench_of(framework: str, points: list[studies.Point], threads: int) -> studies.Bench:
    """A framework's share; fp32 is IEEE fp32, and XLA's threads on a CPU are told by NPROC."""
    return studies.Bench(framework, f"runners.studies.layers.bench_{framework}", points, {"NVIDIA_TF32_OVERRIDE": "0", "NPROC": str(threads)})


def _known_frameworks(names: list[str]) -> list[str]:
    for name in names:
        if name in REFUSED:
            raise WrongUse(f"--frameworks: {name} is not in this study: {REFUSED[name]}")
    return known(names, FRAMEWORKS, "--frameworks")
