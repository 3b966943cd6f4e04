"""The convolution study's cuDNN bench on a CPU: its library computes by PyTorch and has faults.

WINOGRAD is not supported, DIRECT breaks, FFT leaves the last value unwritten, and
IMPLICIT_PRECOMP_GEMM wants a terabyte.
"""

import ctypes
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn import grad

from runners.studies import cudnn_convolutions as module
from runners.studies.cudnn_convolutions import Bench

__all__ = ["Bench"]

WORKSPACES = {"FFT": 4096, "IMPLICIT_PRECOMP_GEMM": 2**40}


class Library:
    """Descriptors are numbers; what was set under each is kept."""

    def __init__(self):
        self.values = {}
        self.functions = {}

    def __getattr__(self, name):
        kind = next((kind for kind, word in module.FUNCTIONS.items() if name.startswith(
            ("cudnnConvolution" + word, "cudnnGetConvolution" + word))), None)
        if name not in self.functions:
            self.functions[name] = self.make(name, kind)
        return self.functions[name]

    def make(self, name, kind):
        def create(target):
            target._obj.value = 100 + len(self.values)
            self.values[target._obj.value] = ()
            return 0

        def keep(descriptor, *values):
            self.values[descriptor.value] += values
            return 0

        def workspace(handle, first, second, convolution, third, number, size):
            algorithm = module.ALGORITHMS[kind][number]
            size._obj.value = WORKSPACES.get(algorithm, 0)
            return 3000 if algorithm == "WINOGRAD" else 0

        def recommend(handle, first, second, convolution, third, most, count, found):
            count._obj.value, found[0].algo, found[0].status = 1, 0, 0
            return 0

        def compute(handle, alpha, first, a, second, b, convolution, number, space, size, beta,
                    third, c):
            algorithm = module.ALGORITHMS[kind][number.value]
            if algorithm in ("WINOGRAD", "DIRECT"):
                return 3000 if algorithm == "WINOGRAD" else 4000
            assert (alpha._obj.value, beta._obj.value) == (1, 0)
            assert size.value == WORKSPACES.get(algorithm, 0)
            operands = (self.tensor(*pair) for pair in ((first, a), (second, b), (third, c)))
            computed = convolve(kind, *operands, self.values[convolution.value]).flatten()
            written = computed.numel() - (algorithm == "FFT")
            self.tensor(third, c).flatten()[:written] = computed[:written]
            return 0

        if name == "cudnnGetErrorString":
            return lambda status: f"CUDNN_STATUS_{status}".encode()
        if name.startswith("cudnnCreate"):
            return create
        if name == "cudnnSetStream":
            return lambda handle, stream: 0
        if name.startswith("cudnnSet"):
            return keep
        if name.endswith("WorkspaceSize"):
            return workspace
        return recommend if name.endswith("Algorithm_v7") else compute

    def tensor(self, descriptor, address):
        shape = self.values[descriptor.value][-4:]
        count = shape[0] * shape[1] * shape[2] * shape[3]
        memory = (ctypes.c_float * count).from_address(address.value)
        return torch.frombuffer(memory, dtype=torch.float32).view(shape)


def convolve(kind, first, second, third, convolution):
    padding, _, stride, _, _, _, mode, compute, groups, _ = convolution
    assert (mode, compute) == (module.CROSS_CORRELATION, module.FLOAT)
    options = {"padding": padding, "stride": stride, "groups": groups}
    if kind == "forward":
        return F.conv2d(first, second, **options)
    if kind == "backward_data":
        return grad.conv2d_input(third.shape, first, second, **options)
    return grad.conv2d_weight(first, third.shape, second, **options)


def on_a_cpu(make):
    return lambda *shape, device=None, **options: make(*shape, **options)


module.ctypes = SimpleNamespace(**{**vars(ctypes), "CDLL": lambda name: Library()})
torch.randn, torch.empty, torch.zeros = map(on_a_cpu, (torch.randn, torch.empty, torch.zeros))
torch.cuda.synchronize = lambda: None
torch.cuda.current_stream = lambda: SimpleNamespace(cuda_stream=0)
torch.cuda.mem_get_info = lambda: (2**30, 2**30)
torch.cuda.memory_reserved = torch.cuda.memory_allocated = lambda: 0
torch.cuda.empty_cache = lambda: None
