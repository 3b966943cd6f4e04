"""From the name of a convolution's kernel to its algorithm and pass, as far as the name says.

Names are those of traces of an H200 and of cuDNN's documentation. An implicit product that says
`indexed` computes its offsets first (IMPLICIT_PRECOMP_GEMM). FFT and Winograd have kernels for
their transforms.
"""

import re
from dataclasses import dataclass

ALGORITHMS = tuple((re.compile(pattern), name) for pattern, name in (
    (r"[Ww]inograd.*(4x4|9x9|NonFused)|[Ww]inogradForward(Data|Filter|Output)",
     "WINOGRAD_NONFUSED"),
    (r"[Ww]inograd", "WINOGRAD"),
    (r"fft2d|fft1d|flip_filter|cgemm|compute_gemm_pointers", "FFT or FFT_TILING"),
    (r"precomp|indexed", "IMPLICIT_PRECOMP_GEMM"),
    (r"implicit|xmma|cutlass|tensorop|(s|h|i)cudnn|scudnn", "implicit product"),
    (r"[Dd]irect|[Dd]epthwise|grouped", "DIRECT"),
    (r"explicit|im2col", "GEMM"),
))
# Winograd's "forward" is its transform, of any pass.
KINDS = ((re.compile(r"dgrad|bwd_?data|backward_?data|BwdData", re.I), "backward_data"),
         (re.compile(r"wgrad|bwd_?filter|backward_?filter|BwdFilter", re.I), "backward_filter"),
         (re.compile(r"fprop|fwd|(?<!winograd)forward", re.I), "forward"))


@dataclass(frozen=True)
class Family:
    """`algorithm` and `kind` (the pass) are "not said" where the name does not tell."""

    algorithm: str
    kind: str


def family(kernel: str) -> Family:
    """Read a kernel's name; the first rule that fits decides."""
    return Family(*(next((name for rule, name in rules if rule.search(kernel)), "not said")
                    for rules in (ALGORITHMS, KINDS)))
