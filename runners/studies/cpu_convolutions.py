"""Convolutions on a CPU, for the convolution study: oneDNN, unfolding and one product, and FFT.

A point is one layer (N C H W, K filters of R x S, stride, padding, groups) and one pass in fp32.
"""

import torch
import torch.nn.functional as F
from torch.nn import grad

from runners.protocol import Unsupported, nothing
from runners.pytorch.runner import Runner
from runners.studies import candidates
from runners.studies.candidates import Candidate, relative_error


class Bench(candidates.Bench):
    describe = staticmethod(Runner.describe)

    def __init__(self, task):
        super().__init__(task)
        torch.set_num_threads(task.threads)
        torch.manual_seed(task.seed)

    def candidates(self, point):
        if point["math"] != "fma":
            raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
        layer = Layer(point)
        exact = layer.library(torch.float64)()
        yield "oneDNN", lambda: candidate(self._onednn(layer), exact)
        yield "unfold_gemm", lambda: candidate(layer.unfolded(), exact)
        yield "fft", lambda: candidate(layer.transformed(), exact)
        yield "cuDNN", self._cudnn

    def _cudnn(self):
        raise Unsupported("cuDNN's algorithms compute on NVIDIA's GPUs only")

    def _onednn(self, layer):
        if not torch.backends.mkldnn.is_available():
            raise Unsupported("this PyTorch was built without oneDNN")
        return layer.library(torch.float32)


def candidate(compute, exact):
    return Candidate(compute, nothing, error=relative_error(compute().double(), exact))


def convolution(kind, x, weight, y, options):
    """Return a function that computes one pass of a convolution by PyTorch's own code."""
    return {
        "forward": lambda: F.conv2d(x, weight, **options),
        "backward_data": lambda: grad.conv2d_input(x.shape, weight, y, **options),
        "backward_filter": lambda: grad.conv2d_weight(x, weight.shape, y, **options),
    }[kind]


class Layer:
    """A point's operands; each method returns a function that computes the point's pass."""

    def __init__(self, point):
        n, c, h, w, k, r, s = (point[key] for key in "nchwkrs")
        self.kind, self.groups = point["pass"], point["groups"]
        self.stride, self.padding = point["stride"], point["padding"]
        self.p = (h + 2 * self.padding - r) // self.stride + 1
        self.q = (w + 2 * self.padding - s) // self.stride + 1
        self.x = torch.randn(n, c, h, w)
        self.weight = torch.randn(k, c // self.groups, r, s)
        self.y = torch.randn(n, k, self.p, self.q)

    def library(self, kind):
        """PyTorch's own convolution: oneDNN in float32, ATen's loops in float64."""
        operands = (each.to(kind) for each in (self.x, self.weight, self.y))
        return convolution(self.kind, *operands, {
            "stride": self.stride, "padding": self.padding, "groups": self.groups})

    def unfolded(self):
        """Each window of the image becomes a column; then one matrix product a sample and group."""
        n, k, groups = len(self.x), len(self.weight), self.groups
        windows = {"kernel_size": self.weight.shape[2:], "stride": self.stride,
                   "padding": self.padding}
        weight = self.weight.reshape(groups, k // groups, -1)  # (G, K/G, C/G R S)
        y = self.y.reshape(n, groups, k // groups, -1)  # (N, G, K/G, P Q)

        def columns():
            # (N, G, C/G R S, P Q)
            return F.unfold(self.x, **windows).reshape(n, groups, weight.shape[2], -1)

        return {
            "forward": lambda: (weight @ columns()).reshape(self.y.shape),
            "backward_data": lambda: F.fold((weight.transpose(1, 2) @ y).flatten(1, 2),
                                            self.x.shape[2:], **windows),
            "backward_filter": lambda: (y @ columns().transpose(2, 3)).sum(0)
            .reshape(self.weight.shape),
        }[self.kind]

    def transformed(self):
        """Products of Fourier transforms of the whole image, as in fbcunn (arXiv 1412.7580)."""
        if self.stride != 1 or self.groups != 1:
            raise Unsupported("convolution by FFT needs stride 1 and one group")
        edge = self.padding
        size = tuple(length + 2 * edge for length in self.x.shape[2:])
        r, s = self.weight.shape[2:]

        def spectrum(values):
            return torch.fft.rfft2(values, s=size)

        def padded():
            return F.pad(self.x, (edge, edge, edge, edge))

        def forward():
            # Cross-correlation conjugates the kernel's spectrum.
            kernel = spectrum(self.weight).conj()
            product = torch.einsum("nchw,kchw->nkhw", spectrum(padded()), kernel)
            return torch.fft.irfft2(product, s=size)[:, :, : self.p, : self.q]

        def backward_data():
            product = torch.einsum("nkhw,kchw->nchw", spectrum(self.y), spectrum(self.weight))
            whole = torch.fft.irfft2(product, s=size)
            return whole[:, :, edge: size[0] - edge, edge: size[1] - edge]

        def backward_filter():
            product = torch.einsum("nchw,nkhw->kchw", spectrum(padded()), spectrum(self.y).conj())
            return torch.fft.irfft2(product, s=size)[:, :, :r, :s]

        return {"forward": forward, "backward_data": backward_data,
                "backward_filter": backward_filter}[self.kind]
