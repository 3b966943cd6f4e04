"""The attention study: which settings are measured, how exact results must be, and whose kernels.

A setting is a batch of B sequences of T tokens, H heads of D values, a mask, a precision and a
pass. Each framework's implementations are candidates of its bench in `runners.studies.attention`.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.proof.tolerances import FP32, LOSS, OPERANDS
from harness.errors import WrongUse
from harness.studies import gemm
from harness.studies.study import Bench, Place, Point, known

FRAMEWORKS = ("pytorch", "jax", "tensorflow")
PASSES = ("forward", "forward_backward")
MASKS = ("no", "yes")
# Roundings of operands, probabilities and results. Measured on a CPU in bf16, T 128 to 4096: up to
# 1.6.
ROUNDINGS = 4
# Squares for the peak of products, and float32 elements for that of the memory.
PEAK_SIZE = {"cpu": 1024, "cuda": 8192}
PEAK_ELEMENTS = {"cpu": 2**24, "cuda": 2**28}
# Patterns of the names of fused kernels, by bench and candidate. Other candidates call none.
FUSED: Mapping[tuple[str, str], re.Pattern[str]] = {
    ("pytorch", "flash"): re.compile(r"flash_(fwd|bwd|attention)|flash::"),
    ("pytorch", "efficient"): re.compile(r"fmha_cutlass|efficient_attention|MemEffAttention"),
    ("pytorch", "cudnn"): re.compile(r"cudnn_attention|cudnn\w*_sdpa"),
    ("pytorch", "flex"): re.compile(r"^triton_(tem|\w*flex)|CompiledFxGraph"),
    ("jax", "cudnn"): re.compile(r"cudnn\w*_sdpa|cudnn\$fmha|fmha"),
}


@dataclass(frozen=True)
class Grid:
    """Lists of settings. Lengths and masks are crossed; the first of each other list is the base.

    The others are varied one at a time, at the first length and mask, unless `full` crosses all.
    Without a `batch`, it is that of `tokens` in all.
    """

    lengths: Sequence[int]
    widths: Sequence[int]
    heads: Sequence[int]
    masks: Sequence[str]
    precisions: Sequence[str]
    passes: Sequence[str] = PASSES
    tokens: int = 8192
    batch: int | None = None
    full: bool = False


# A GPU's base, B 8, T 1024, H 16, D 64 in bf16 without a mask, is that of jax-ml/jax#24934.
# 12 heads are GPT-2's and ViT-B's. A GPU has 24 points, a CPU 10; all lists crossed: 288 and 16.
DEFAULT = {"cuda": Grid((1024, 4096, 8192), (64, 128), (16, 12, 32), MASKS,
                        ("bf16", "fp32", "tf32", "fp16")),
           "cpu": Grid((128, 512), (64,), (4, 12), MASKS, ("fp32",), tokens=512)}


def points_of(grid: Grid) -> list[Point]:
    """Return each setting in each pass. Raises WrongUse for a word that is none."""
    known(grid.masks, MASKS, "--causal")
    known(grid.precisions, OPERANDS, "--precisions")
    known(grid.passes, PASSES, "--passes")
    lists = (grid.lengths, grid.masks, grid.widths, grid.heads, grid.precisions)
    if not all((*lists, grid.passes)):
        raise WrongUse("study attention: each list needs a value; "
                       "write one, or leave the option out")
    bases = tuple(each[0] for each in lists)
    settings = [setting for setting in itertools.product(*lists)
                if grid.full or setting[2:] == bases[2:]
                or (setting[:2] == bases[:2]
                    and sum(a != b for a, b in zip(setting, bases, strict=True)) == 1)]
    return [_point(grid, *setting, kind) for setting in settings for kind in grid.passes]


def _point(grid: Grid, length: int, causal: str, width: int, heads: int, precision: str,
           kind: str) -> Point:
    batch = grid.batch or max(1, grid.tokens // length)
    mask = "causal" if causal == "yes" else "unmasked"
    return {"point": f"b{batch}-t{length}-h{heads}-d{width}-{mask}-{precision}-{kind}",
            "batch": batch, "length": length, "heads": heads, "width": width, "causal": causal,
            "precision": precision, "pass": kind}


def peaks_of(points: Sequence[Point], device_kind: str) -> list[Point]:
    """Return the points that measure the device: a product in each precision, and its memory."""
    none: dict[str, Any] = {"batch": 0, "heads": 0, "width": 0, "causal": "no"}
    size, elements = PEAK_SIZE[device_kind], PEAK_ELEMENTS[device_kind]
    found = [{"point": f"product-{size}-{precision}", **none, "length": size,
              "precision": precision, "pass": "product"}
             for precision in dict.fromkeys(point["precision"] for point in points)]
    return [*found, {"point": "memory", **none, "length": elements, "precision": "fp32",
                     "pass": "memory"}]


def bench_of(framework: str, points: Sequence[Point], place: Place, kept: str) -> Bench:
    """Return a framework's share. PyTorch's has the peaks too.

    NPROC sets XLA's threads on a CPU. The processes share the exact results in the folder `kept`.
    On a GPU JAX keeps there what it compiles; PyTorch's compiler has such a folder by itself.
    """
    variables = {"NPROC": str(place.threads), "DLBENCH_EXACT": kept}
    if framework == "jax" and place.device_kind == "cuda":
        variables |= {"JAX_COMPILATION_CACHE_DIR": kept,
                      "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    peaks = peaks_of(points, place.device_kind) if framework == "pytorch" else []
    return Bench(framework, f"runners.studies.attention.bench_{framework}", [*points, *peaks],
                 variables)


def tolerance_of(point: Point, _candidate: str = "") -> float:
    """Return the largest relative error of an output or gradient that is timed.

    In fp32 it is below the rounding of TF32.
    """
    if point["pass"] in ("product", "memory"):
        return gemm.tolerance_of(point)
    return LOSS[0] * FP32 + ROUNDINGS * OPERANDS[point["precision"]]


def fault_of_calls(bench: str, candidate: str, names: Sequence[str]) -> str:
    """Say why `names`, of kernels or operators, are not those of the candidate; "" if they are."""
    own = FUSED.get((bench, candidate))
    others = {other: pattern for (framework, other), pattern in FUSED.items()
              if framework == bench and other != candidate}
    for other, pattern in others.items():
        found = next((name for name in names if pattern.search(name)), "")
        if found and not (own and own.search(found)):
            return f"it called {found[:100]}, which is {other}'s"
    if own and not any(own.search(name) for name in names):
        return f"it called no kernel of {candidate}'s, but {', '.join(names[:3])[:150]}"
    return ""
