"""`dlbench study gemm`: what transposing an operand costs, for the article's product and for every product of every network.

It lists the shapes and asks `harness.studies.study` to measure them; tables and plots are `analysis.studies.gemm`'s.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import networks
from analysis.proof.tolerances import FP32, LOSS, OPERANDS
from analysis.records import reader
from harness.cli.compare import AllowDirty, Interpreter, Out
from harness.cli.options import (
    Campaigns,
    Device,
    Processes,
    Resume,
    Threads,
    WindowSeconds,
    say,
    words,
)
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.studies import study
from harness.validation import did_you_mean
from networks import work

ARTICLE = (1024, 2048, 26752)  # arXiv 1608.07249: C = A B^T of FCN-S's first layer at batch 1024
LARGEST_CPU_GFLOP = 5.0  # beyond, all networks would take hours
ROUNDINGS = 4  # of operands and result, in a product of random numbers: found 0.3 to 1.2


def gemm(
    chosen: Annotated[str, typer.Option("--networks", help="With commas; all if not given, `none` for the article's alone.")] = "",
    precisions: Annotated[str, typer.Option(help="With commas; default fp32,tf32,bf16,fp16, on a CPU fp32.")] = "",
    batch: Annotated[int | None, typer.Option(min=1, help="Default: the campaign's, else the middle one of the network's.")] = None,
    largest: Annotated[float | None, typer.Option(metavar="GFLOP", help="Leave larger products out; default on a CPU: 5, but for "
                                                  "the article's.")] = None,
    campaigns: Campaigns = None,
    processes: Processes = 3,
    window_seconds: WindowSeconds = 0.002,
    device: Device = "auto",
    threads: Threads = None,
    out: Out = None,
    resume: Resume = False,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Time NN, NT, TN, TT and transpose-then-multiply for every matrix product of the networks."""
    from analysis.studies import (
        gemm as gemm_study,  # here, as in every verb: drawing takes a second to import
    )

    place = study.place_of(device, threads, named(interpreter), allow_dirty)
    batches = batches_of(words(chosen) or networks.names(), batch, campaigns or ())
    cpu = place.device_kind == "cpu"
    chosen_precisions = words(precisions) or [name for name in OPERANDS if name == "fp32" or not cpu]
    points = points_of(batches, chosen_precisions, largest or (LARGEST_CPU_GFLOP if cpu else None), article=largest is None)
    settings = {"batches": batches, "precisions": chosen_precisions, "largest_gflop": largest}
    effort = study.Effort(processes=processes, window_seconds=window_seconds, once_seconds=0.1)
    bench = study.Bench("pytorch", "runners.studies.gemm", points)
    folder = out or Path("results") / f"gemm-{datetime.now():%Y%m%d-%H%M%S}"
    say(f"{len(points)} products in {processes} processes, records in {folder}")
    study.run(study.Study("gemm", [bench], effort, settings, tolerance_of), place, folder, resume, say)
    say(f"Page: {gemm_study.write([folder], folder, campaigns or [])}")


def batches_of(chosen: list[str], batch: int | None, campaigns: Sequence[Path] = ()) -> dict[str, int]:
    """The batch of each network, that of a campaign whose kernels are to be set beside it; `none` means no network.

    Raises WrongUse for an unknown one, BadRecords for a folder that is no campaign: before hours of measuring, not behind them.
    """
    known = [*networks.names(), *networks.names(small=True)]
    unknown = [name for name in chosen if name not in known and name != "none"]
    if unknown:
        raise WrongUse(f"--networks: unknown network {unknown[0]}{did_you_mean(unknown[0], known)}")
    found = {name: networks.get(name).batches for name in chosen if name != "none"}
    traced = {trial["network"]: trial["batch"] for folder in campaigns for trial in reader.read(folder).trials}
    return {name: batch or traced.get(name) or batches[len(batches) // 2] for name, batches in found.items()}


def points_of(batches: dict[str, int], precisions: list[str], largest_gflop: float | None, article: bool = False
              ) -> list[study.Point]:
    """Every distinct shape in every precision, the article's first; products beyond `largest_gflop` are left out, but with
    `article` not the article's."""
    unknown = [name for name in precisions if name not in OPERANDS]
    if unknown:
        raise WrongUse(f"--precisions: unknown precision {unknown[0]}{did_you_mean(unknown[0], OPERANDS)}")
    products = [product for name, batch in batches.items() for product in work.matrix_products(networks.get(name), batch)]
    shapes = dict.fromkeys([ARTICLE, *((product.m, product.n, product.k) for product in products)])
    kept = [(m, n, k) for m, n, k in shapes
            if largest_gflop is None or 2e-9 * m * n * k <= largest_gflop or (article and (m, n, k) == ARTICLE)]
    return [{"point": f"{m}x{n}x{k}-{precision}", "m": m, "n": n, "k": k, "precision": precision}
            for m, n, k in kept for precision in precisions]


def tolerance_of(point: dict[str, Any], _candidate: str = "") -> float:
    """Largest relative error of a product of random numbers: the rounding of its operands and, in fp32, of its sums."""
    return LOSS[0] * FP32 + ROUNDINGS * OPERANDS[point["precision"]]
