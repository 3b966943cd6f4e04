"""Matrix products in PyTorch, for the GEMM study: cuBLAS on a GPU, MKL or oneDNN on a CPU.

A point is C[m, n] = op(A) op(B) of row-major matrices in one precision. Its candidates are NN, NT,
TN and TT, where T means that the operand is stored transposed, and the two that first write a
transposed operand into a new matrix and then multiply NN.
"""

import torch

from runners.protocol import Unsupported, nothing
from runners.pytorch.runner import Runner
from runners.studies import candidates
from runners.studies.candidates import Candidate, relative_error

KINDS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
         "fp16": torch.float16}
# Below, a launch from Python takes as long as the product, so a CUDA graph repeats it.
GRAPH_FLOPS = 5e9
GRAPH_PRODUCTS = 10
CHECKED_ROWS = 8


class Bench(candidates.Bench):
    describe = staticmethod(Runner.describe)

    def __init__(self, task):
        super().__init__(task)
        self.device = torch.device(task.device)
        torch.set_num_threads(task.threads)
        torch.manual_seed(task.seed)
        self.stream = torch.cuda.Stream() if task.device == "cuda" else None
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def candidates(self, point):
        m, n, k, precision = point["m"], point["n"], point["k"], point["precision"]
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        a, b = self._random(m, k, precision), self._random(k, n, precision)
        c = torch.empty(m, n, dtype=KINDS[precision], device=self.device)
        exact = a[:CHECKED_ROWS].double() @ b.double()  # (8, n)
        # The transposed copies, made when the first candidate needs them.
        stored = {}

        def transposed(name, matrix):
            if name not in stored:
                stored[name] = matrix.t().contiguous()
            return stored[name].t()

        def measured(multiply):
            self._refuse(precision)
            multiply()
            error = relative_error(c[:CHECKED_ROWS].double(), exact)
            return self._repeated(multiply, 2 * m * n * k, error)

        yield "nn", lambda: measured(lambda: torch.mm(a, b, out=c))
        yield "nt", lambda: measured(multiplication(a, transposed("b", b), c))
        yield "tn", lambda: measured(multiplication(transposed("a", a), b, c))
        yield "tt", lambda: measured(multiplication(transposed("a", a), transposed("b", b), c))
        yield "nt_copied", lambda: measured(multiplication_of_copy(a, transposed("b", b), c, "b"))
        yield "tn_copied", lambda: measured(multiplication_of_copy(transposed("a", a), b, c, "a"))

    def _random(self, rows, columns, precision):
        return torch.randn(rows, columns, device=self.device).to(KINDS[precision])

    def _refuse(self, precision):
        if self.device.type == "cuda":
            return
        if precision == "tf32":
            raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
        if precision == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise Unsupported("oneDNN has no bf16 products for this processor (it needs AVX-512)")
        if precision == "fp16" and not torch.ops.mkldnn._is_mkldnn_fp16_supported():
            raise Unsupported("oneDNN has no fp16 products for this processor "
                              "(it needs AVX-512 FP16)")

    def _repeated(self, multiply, flops, error):
        if self.device.type != "cuda":
            return Candidate(multiply, nothing, error=error)
        if flops > GRAPH_FLOPS:
            return Candidate(multiply, torch.cuda.synchronize, error=error)
        graph = captured(multiply, self.stream)
        return Candidate(graph.replay, torch.cuda.synchronize, GRAPH_PRODUCTS, error)


def multiplication(a, b, c):
    return lambda: torch.mm(a, b, out=c)


def multiplication_of_copy(a, b, c, copied):
    """Copy, then multiply: what a library without transposed products would do."""
    target = torch.empty((a if copied == "a" else b).shape, dtype=c.dtype, device=c.device)

    def multiply():
        target.copy_(a if copied == "a" else b)
        torch.mm(target if copied == "a" else a, b if copied == "a" else target, out=c)

    return multiply


def captured(multiply, stream):
    """A CUDA graph of `GRAPH_PRODUCTS` products one after another.

    It is warmed up on the stream of the capture: cuBLAS keeps a workspace for each stream, and one
    that a capture allocates is freed with its graph (torch 2.11: the next capture wrote to it, an
    illegal access). `torch.cuda.graph` would also collect garbage.
    """
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        multiply()
        stream.synchronize()
        graph.capture_begin()
        for _ in range(GRAPH_PRODUCTS):
            multiply()
        graph.capture_end()
    return graph
