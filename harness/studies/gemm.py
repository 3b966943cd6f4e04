"""The GEMM study: which matrix products are measured, and how exact they must be.

The products are the article's and those of the networks, in each precision.
"""

from collections.abc import Sequence
from pathlib import Path

import networks
from analysis.proof.tolerances import FP32, LOSS, OPERANDS
from analysis.records import reader
from harness.studies.study import Bench, Effort, Point, Study, known
from networks import work

# arXiv 1608.07249: C = A B^T of FCN-S's first layer at batch 1024.
ARTICLE = (1024, 2048, 26752)
# With larger products, all networks would take hours on a CPU.
LARGEST_CPU_GFLOP = 5.0
# How often operands and result are rounded in a product of random numbers; measured 0.3 to 1.2.
ROUNDINGS = 4


def study_of(device_kind: str, batches: dict[str, int], precisions: list[str],
             largest: float | None, effort: Effort) -> Study:
    """Plan the study; no precisions means all that the device has."""
    cpu = device_kind == "cpu"
    chosen = precisions or [name for name in OPERANDS if name == "fp32" or not cpu]
    points = points_of(batches, chosen, largest or (LARGEST_CPU_GFLOP if cpu else None),
                       article=largest is None)
    settings = {"batches": batches, "precisions": chosen, "largest_gflop": largest}
    return Study("gemm", [Bench("pytorch", "runners.studies.gemm", points)], effort, settings,
                 tolerance_of)


def batches_of(chosen: Sequence[str], batch: int | None, campaigns: Sequence[Path] = ()
               ) -> dict[str, int]:
    """Return the batch of each network: `batch`, that of a campaign, or the network's middle one.

    `none` means no network. Raises WrongUse for an unknown network and BadRecords for a folder that
    is no campaign, before anything is measured.
    """
    names = known(chosen, [*networks.names(), *networks.names(small=True), "none"], "--networks")
    found = {name: networks.get(name).batches for name in names if name != "none"}
    traced = {trial["network"]: trial["batch"]
              for folder in campaigns for trial in reader.read(folder).trials}
    return {name: batch or traced.get(name) or batches[len(batches) // 2]
            for name, batches in found.items()}


def points_of(batches: dict[str, int], precisions: Sequence[str], largest_gflop: float | None,
              article: bool = False) -> list[Point]:
    """Return every distinct shape in every precision, the article's first.

    Products beyond `largest_gflop` are left out; `article` keeps the article's.
    """
    known(precisions, OPERANDS, "--precisions")
    products = [product for name, batch in batches.items()
                for product in work.matrix_products(networks.get(name), batch)]
    shapes = dict.fromkeys([ARTICLE, *((each.m, each.n, each.k) for each in products)])
    return [{"point": f"{m}x{n}x{k}-{precision}", "m": m, "n": n, "k": k, "precision": precision}
            for m, n, k in shapes for precision in precisions
            if largest_gflop is None or 2e-9 * m * n * k <= largest_gflop
            or (article and (m, n, k) == ARTICLE)]


def tolerance_of(point: Point, _candidate: str = "") -> float:
    """Return the largest relative error of a product of random numbers.

    It covers the rounding of the operands and, in fp32, of the sums.
    """
    return LOSS[0] * FP32 + ROUNDINGS * OPERANDS[point["precision"]]
