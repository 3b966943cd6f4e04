"""From a GPU kernel's name to what it computes: its class, and of a product or convolution its arithmetic and transposition.

A name is all that a library says of a kernel, so these are rules about names: of cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, XLA,
TensorFlow, Paddle and NCCL. What they do not know is `unclassified`, and reports say how much time that is. They are tested on
kernel lists recorded on a GPU (tests/analysis/kernel_lists).
"""

import re
from dataclasses import dataclass
from functools import cache

PRODUCT, CONVOLUTION, LAYOUT, ELEMENTWISE = "matrix product", "convolution", "layout", "element-wise"
REDUCTION, OPTIMISER, COLLECTIVE, UNCLASSIFIED = "reduction", "optimiser", "collective", "unclassified"
COPY, MEMSET = "copy", "memset"
WALL, BUSY, IDLE, NO_TRACE = "wall", "busy", "idle", "no trace"  # rows of kernels.csv that are no activity
LAST_ROWS = (IDLE, NO_TRACE)  # one of them is written last, so a trace that has none was cut off
CLASSES = (PRODUCT, CONVOLUTION, REDUCTION, ELEMENTWISE, LAYOUT, OPTIMISER, COLLECTIVE, COPY, MEMSET, UNCLASSIFIED)
HIDDEN = {COLLECTIVE: 1, COPY: 2, MEMSET: 2}  # a class counts while none of a lower number runs; computing has 0

# The first rule found in the name decides. Compilers come first, because their names quote the operations that they fused.
RULES = tuple((re.compile(pattern), kind) for pattern, kind in (
    (r"nccl|nvshmem|all_?reduce|AllReduce|all_?gather|AllGather|cross_device_reduce", COLLECTIVE),
    (r"^memcpy\d+", COPY),  # what the driver launches for the copies and memsets of a CUDA graph
    (r"^memset\d+", MEMSET),

    # Triton, written by torch.inductor: template, foreach, reduction, persistent reduction, pointwise
    (r"^triton_(tem|mm)_\w*conv", CONVOLUTION),
    (r"^triton_(tem|mm)_", PRODUCT),
    (r"^triton_for_", OPTIMISER),
    (r"^triton_(red|per|split_scan)_", REDUCTION),
    (r"^triton_poi_fused_((_to_copy|clone|permute|transpose|t|view|cat)_)+\d+$", LAYOUT),
    (r"^triton_poi_", ELEMENTWISE),

    # XLA's fusions. One that is only called fusion_7 says nothing; the runner adds what is heavy in it (runners/jax/profile.py)
    (r"^fusion(_\d+)?: (ragged-)?dot$", PRODUCT),
    (r"^fusion(_\d+)?: convolution$", CONVOLUTION),
    (r"^fusion(_\d+)?: (reduce|reduce-window|select-and-scatter|sort)$", REDUCTION),
    (r"^fusion(_\d+)?: (transpose|copy|concatenate|pad|reverse|(dynamic-)?(update-)?slice)$", LAYOUT),
    (r"^fusion(_\d+)?: ", ELEMENTWISE),
    (r"^(triton_)?gemm_fusion|^(__)?triton_gemm", PRODUCT),
    (r"^(loop|input)_\w*reduce\w*fusion|^wrapped_reduce|^triton_softmax", REDUCTION),
    (r"^(loop|input)_(transpose|copy|concatenate|pad|slice)_fusion", LAYOUT),
    (r"^wrapped_(transpose|copy|concatenate|pad|slice|convert)", LAYOUT),
    (r"^(loop|input)_\w*fusion|^wrapped_", ELEMENTWISE),

    (r"multi_tensor_apply|[Mm]omentum|FusedSgd|[Aa]dam|Sgd|SGD|ApplyGradientDescent|amp_(update|non_finite)", OPTIMISER),
    (r"split_?[Kk]_?reduce|[Rr]educe_?[Ss]plit_?K|reduce_wgrad", REDUCTION),  # the second half of a product split along K
    (r"[Rr]adix_?[Ss]ort|[Uu]nique_?[Bb]y_?[Kk]ey|compute_grad_weight", REDUCTION),  # an embedding's gradient: sort, sum by word
    (r"init_device_workspace|scale\w*Tensor|RNN_init|RNN_copy", ELEMENTWISE),
    (r"[fd]prop|dgrad|wgrad|[Cc]onvol|[Cc]onv[12]d|[Dd]epthwise|[Ww]inograd|[sh]cudnn|\dcudnn_|fft2d|flip_filter", CONVOLUTION),
    (r"nchw\w*[Tt]o_?[Nn]|nhwc\w*[Tt]o_?[Nn]|AddPadding|PadInput|convertTensor|tensorTransform|[Tt]ranspos|[Pp]ermut|Shuffl|SwapDim"
     r"|im2col|col2im|direct_copy|copy_kernel|CopyKernel|copyKernel|CatArray|[Cc]oncat|ConversionOp|StridedSlic|nhwcSlice", LAYOUT),
    (r"gemm|Gemm|GEMM|nvjet|gemv|dot_kernel|cutlass|ampere_lstm|[Pp]ersist(RNN_|_fp_|_bp_)(?!init)", PRODUCT),
    (r"[Rr]educ|[Ss]oft_?[Mm]ax|[Nn]ormaliz|[Bb]atch_?[Nn]orm|bn_(fw|bw)|layer_norm|[Pp]ool|nll_loss|CrossEntropy|BiasGrad|[Aa]rg_?(Max|Min)"
     r"|DeviceScan|[Ww]elford", REDUCTION),
    (r"[Ee]lem(ent)?_?[Ww]ise|EigenMetaKernel|[Pp]ointwise|_GPU_DT_|[Ff]ill|[Dd]ropout|distribution|[Rr]andom|[Pp]hilox|[Ss]igmoid|[Rr]elu"
     r"|[Bb]ias|[Gg]ather|[Ss]catter|[Ii]ndex|[Ee]mbedding|op_tensor|op_generic|addTensor|Broadcast|ForRange|scal_kernel|epilogue|arange|persistRNN_init",
     ELEMENTWISE),
))

# Arithmetic: what operands are rounded to. First the types that a name spells out, then the letter of BLAS (sgemm); `s1688` is the
# tensor core's instruction of 16 x 8 x 8 with sums in fp32, and on operands that no name calls half that is TF32's.
ARITHMETIC = tuple((re.compile(pattern), kind) for pattern, kind in (
    (r"e4m3|e5m2|fp8", "fp8"),
    (r"tf32|tfloat32", "tf32"),
    (r"bf16|bfloat16", "bf16"),
    (r"f16|half|fp16|hgemm|hcudnn|h884|h1688", "fp16"),
    (r"s1688(gemm|fprop|dgrad|wgrad)", "tf32"),
    (r"f64|fp64|double|dgemm|d884", "fp64"),
    (r"f32|fp32|float|sgemm|scudnn", "fp32"),
))
NVJET = re.compile(r"nvjet_(?:sm\d+_)?(?:qq)?([a-z])[a-z]{2}_")  # letters of operands, sums and result; tensor cores only
NVJET_OPERANDS = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "o": "fp8", "d": "fp64"}
TRANSPOSITIONS = tuple(map(re.compile, (r"_([NT][NT])[NT](?:_|$)", r"_([nt][nt])(?:_|>|$)")))  # nvjet's, then everybody's

LONGEST_NAME = 200


@dataclass(frozen=True)
class Kind:
    """What a kernel computes; `arithmetic` and `transposition` are empty where its name does not say, or it has none."""

    name: str
    arithmetic: str = ""
    transposition: str = ""


@cache
def classify(kernel: str) -> Kind:
    """Classify a kernel by its whole name.

    Arithmetic is fp32, tf32, bf16, fp16, fp8 or fp64. Transposition is nn, nt, tn or tt of column-major operands, as BLAS counts
    them: a row-major `x @ w.T` shows as tn.
    """
    name = bare(kernel)
    kind = next((kind for rule, kind in RULES if rule.search(name)), UNCLASSIFIED)
    if kind not in (PRODUCT, CONVOLUTION):
        return Kind(kind)
    return Kind(kind, _arithmetic(name), _transposition(name) if kind == PRODUCT else "")


def bare(kernel: str) -> str:
    """Take arguments and return type off a C++ name: they name types that a kernel only passes on."""
    name = kernel.removeprefix("void ")
    opening = _last_bracket(name)
    return name[:opening] if opening > 0 else name


def shorten(kernel: str) -> str:
    """Shorten a name for a table: bare, and of what is longer than `LONGEST_NAME` the two ends."""
    name = bare(kernel)
    end = LONGEST_NAME // 2 - 2
    return name if len(name) <= LONGEST_NAME else f"{name[:end]} .. {name[-end:]}"


def _arithmetic(name: str) -> str:
    if found := NVJET.search(name):
        return NVJET_OPERANDS.get(found[1], "")
    return next((kind for rule, kind in ARITHMETIC if rule.search(name)), "")


def _transposition(name: str) -> str:
    return next((found[1].lower() for rule in TRANSPOSITIONS if (found := rule.search(name))), "")


def _last_bracket(name: str) -> int:
    """Find the bracket that opens what a bracket at the end of `name` closes; -1 where none does."""
    depth = 0
    for place in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return place
    return -1
