"""Every convolution algorithm of cuDNN's legacy interface: ctypes on PyTorch's libcudnn.

A point is one layer (N C H W, K filters of R x S, stride, padding, groups), one pass and one
arithmetic; its candidates are the algorithms. PyTorch gives memory, streams and the float64 result
to compare with; it computes nothing that is timed.
"""

import ctypes

import torch

from runners.protocol import Unsupported
from runners.pytorch.runner import Runner
from runners.studies import candidates
from runners.studies.candidates import Candidate, relative_error
from runners.studies.cpu_convolutions import convolution

# Enumerations of cudnn_cnn_v9.h; a place in a tuple is the algorithm's number.
ALGORITHMS = {
    "forward": ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING",
                "WINOGRAD", "WINOGRAD_NONFUSED"),
    "backward_data": ("ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    "backward_filter": ("ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED",
                        "FFT_TILING"),
}
FUNCTIONS = {"forward": "Forward", "backward_data": "BackwardData",
             "backward_filter": "BackwardFilter"}
NCHW, FLOAT, CROSS_CORRELATION = 0, 0, 1
# CUDNN_DEFAULT_MATH may use TF32 on fp32 tensors, CUDNN_FMA_MATH keeps tensor cores out.
MATH = {"tf32": 0, "fma": 3}
# The share of the free memory that the workspace may take.
FREE_SHARE = 0.9
ONE, ZERO = ctypes.c_float(1), ctypes.c_float(0)
# Samples that are compared of a pass whose samples do not depend on each other.
CHECKED_SAMPLES = 2


class Performance(ctypes.Structure):
    """cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, alike for the three passes."""

    _fields_ = [("algo", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float),
                ("memory", ctypes.c_size_t), ("determinism", ctypes.c_int),
                ("math_type", ctypes.c_int), ("reserved", ctypes.c_int * 3)]


class Bench(candidates.Bench):
    describe = staticmethod(Runner.describe)

    def __init__(self, task):
        super().__init__(task)
        if task.device != "cuda":
            raise Unsupported("cuDNN computes on NVIDIA's GPUs")
        torch.manual_seed(task.seed)
        # Makes the context that cuDNN will use.
        torch.zeros(1, device="cuda")
        self.cudnn = Cudnn(ctypes.CDLL("libcudnn.so.9"))
        self.workspace = torch.empty(0, dtype=torch.uint8, device="cuda")

    def candidates(self, point):
        layer = Layer(self.cudnn, point)
        exact, ranks = layer.exact(), layer.ranks()
        names = ALGORITHMS[point["pass"]]
        sizes = [layer.workspace_bytes(number) for number in range(len(names))]
        self._reserve(sizes)
        for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
            yield name, lambda number=number, size=size: candidate(
                layer, number, size, self.workspace, exact, ranks)

    def _reserve(self, sizes):
        """Let the workspace, which algorithms use in turn, hold the largest that memory allows."""
        free = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        most = int(FREE_SHARE * (torch.cuda.mem_get_info()[0] + free + self.workspace.numel()))
        largest = max((size for size in sizes if size is not None and size <= most), default=0)
        if largest > self.workspace.numel():
            self.workspace = torch.empty(0, dtype=torch.uint8, device="cuda")
            torch.cuda.empty_cache()
            # A power of two, so that a sweep does not allocate at every point.
            size = min(2 ** (largest - 1).bit_length(), most)
            self.workspace = torch.empty(size, dtype=torch.uint8, device="cuda")


def candidate(layer, number, workspace_bytes, workspace, exact, ranks):
    """Run an algorithm once and compare; where cuDNN refuses (None bytes), running it says why."""
    if workspace_bytes is not None and workspace_bytes > workspace.numel():
        raise Unsupported(f"needs a workspace of {workspace_bytes / 2**30:.1f} GiB, "
                          "more than is free")
    step = layer.convolution(number, workspace, workspace_bytes or 0)
    # What an algorithm leaves out must show, in the samples too that are not compared.
    layer.result.fill_(float("nan"))
    step()
    torch.cuda.synchronize()
    whole = bool(layer.result.isfinite().all())
    error = relative_error(layer.result[layer.checked].double(), exact) if whole else float("nan")
    return Candidate(step, torch.cuda.synchronize, error=error, workspace_bytes=workspace_bytes,
                     rank=ranks.get(number))


class Layer:
    """A point's tensors and descriptors, and cuDNN's questions about it."""

    def __init__(self, cudnn, point):
        self.cudnn, self.point, self.kind = cudnn, point, point["pass"]
        n, c, h, w, k, r, s = (point[key] for key in "nchwkrs")
        self.stride, self.padding, self.groups = point["stride"], point["padding"], point["groups"]
        p = (h + 2 * self.padding - r) // self.stride + 1
        q = (w + 2 * self.padding - s) // self.stride + 1
        self.x = torch.randn(n, c, h, w, device="cuda")
        self.weight = torch.randn(k, c // self.groups, r, s, device="cuda")
        self.y = torch.randn(n, k, p, q, device="cuda")
        self.descriptor = cudnn.convolution(self.padding, self.stride, self.groups,
                                            MATH[point["math"]])
        x, y = (cudnn.tensor(n, c, h, w), self.x), (cudnn.tensor(n, k, p, q), self.y)
        weight = cudnn.filter(k, c // self.groups, r, s), self.weight
        # Two that are read and one that is written, each with its descriptor.
        self.operands = {"forward": (x, weight, y), "backward_data": (weight, y, x),
                         "backward_filter": (x, y, weight)}[self.kind]
        self.result = self.operands[2][1]
        self.checked = slice(None if self.kind == "backward_filter" else CHECKED_SAMPLES)

    def exact(self):
        """Compute the pass in float64 by PyTorch's own unfolding, for the samples in `checked`."""
        options = {"stride": self.stride, "padding": self.padding, "groups": self.groups}
        x, y = self.x[self.checked].double(), self.y[self.checked].double()
        with torch.backends.cudnn.flags(enabled=False):
            return convolution(self.kind, x, self.weight.double(), y, options)()

    def workspace_bytes(self, number):
        """Return the bytes that an algorithm needs, None where cuDNN does not offer it."""
        size = ctypes.c_size_t()
        (first, _), (second, _), (third, _) = self.operands
        name = f"cudnnGetConvolution{FUNCTIONS[self.kind]}WorkspaceSize"
        status = getattr(self.cudnn.library, name)(
            self.cudnn.handle, first, second, self.descriptor, third, number, ctypes.byref(size))
        return None if status else size.value

    def convolution(self, number, workspace, workspace_bytes):
        """Return a function that launches the algorithm once."""
        (first, a), (second, b), (third, c) = self.operands
        function = getattr(self.cudnn.library, f"cudnnConvolution{FUNCTIONS[self.kind]}")
        arguments = (self.cudnn.handle, ctypes.byref(ONE), first, address(a), second, address(b),
                     self.descriptor, ctypes.c_int(number), address(workspace),
                     ctypes.c_size_t(workspace_bytes), ctypes.byref(ZERO), third, address(c))

        def step():
            status = function(*arguments)
            if status:
                self.cudnn.refuse(status)

        # An address alone would not keep it alive.
        step.keeps = workspace
        return step

    def ranks(self):
        """Return the place of each algorithm, by number, in the order of cuDNN's heuristics."""
        count, most = ctypes.c_int(), len(ALGORITHMS[self.kind])
        found = (Performance * most)()
        (first, _), (second, _), (third, _) = self.operands
        self.cudnn.call(f"cudnnGetConvolution{FUNCTIONS[self.kind]}Algorithm_v7", self.cudnn.handle,
                        first, second, self.descriptor, third, most, ctypes.byref(count), found)
        able = [each.algo for each in found[: count.value] if each.status == 0]
        return {algorithm: place for place, algorithm in reversed(list(enumerate(able)))}


class Cudnn:
    """cuDNN's handle and descriptors on PyTorch's stream; a status becomes an exception."""

    def __init__(self, library):
        self.library = library
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(self.handle))
        stream = torch.cuda.current_stream().cuda_stream
        self.call("cudnnSetStream", self.handle, ctypes.c_void_p(stream))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            self.refuse(status)

    def refuse(self, status):
        text = f"{self.library.cudnnGetErrorString(status).decode()} ({status})"
        # CUDNN_STATUS_NOT_SUPPORTED and its sub-codes.
        if 3000 <= status < 4000:
            raise Unsupported(text)
        raise RuntimeError(text)

    def tensor(self, *shape):
        return self._made("Tensor", "Tensor4d", NCHW, FLOAT, *shape)

    def filter(self, *shape):
        return self._made("Filter", "Filter4d", FLOAT, NCHW, *shape)

    def convolution(self, padding, stride, groups, math):
        descriptor = self._made("Convolution", "Convolution2d", padding, padding, stride, stride,
                                1, 1, CROSS_CORRELATION, FLOAT)
        self.call("cudnnSetConvolutionGroupCount", descriptor, groups)
        self.call("cudnnSetConvolutionMathType", descriptor, math)
        return descriptor

    def _made(self, kind, values_kind, *values):
        descriptor = ctypes.c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        self.call(f"cudnnSet{values_kind}Descriptor", descriptor, *values)
        return descriptor


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())
