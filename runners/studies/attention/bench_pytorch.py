"""The attention study in PyTorch: each kernel of scaled_dot_product_attention alone, and flex.

Operands are (B, H, T, D). A context allows one kernel only, so that PyTorch raises where it would
otherwise take another. This module also measures the peak of products and of the memory.
"""

import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from runners.protocol import Task, Unsupported
from runners.pytorch.runner import Runner
from runners.studies import gemm
from runners.studies.attention import bench
from runners.studies.candidates import Candidate

KERNELS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION,
           "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
# How PyTorch calls it where it says why it did not take it.
HEADINGS = {"efficient": "memory efficient"}


def one_kernel(kernel, causal):
    def attend(q, k, v):
        with sdpa_kernel([kernel]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def flex(length, causal, device):
    # Compiled code of an earlier point would be compiled anew for sequences of any length.
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda sample, head, query, key: query >= key, None, None, length,
                             length, device=device) if causal else None
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


class Bench(bench.AttentionBench):
    LIBRARY = torch
    IMPLEMENTATIONS = (*KERNELS, "flex")
    describe = staticmethod(Runner.describe)

    def __init__(self, task):
        super().__init__(task)
        torch.set_num_threads(task.threads)
        self.products = gemm.Bench(task)

    def candidates(self, point):
        torch.backends.cuda.matmul.allow_tf32 = point["precision"] == "tf32"
        if point["pass"] == "product":
            square = {**dict.fromkeys("mnk", point["length"]), "precision": point["precision"]}
            yield "product", next(iter(self.products.candidates(square)))[1]
        elif point["pass"] == "memory":
            yield "memory", lambda: self._stream(point["length"])
        else:
            yield from super().candidates(point)

    def _stream(self, elements):
        stream = Runner.stream(elements, Task(None, None, self.task.device, self.task.threads))
        stream.step()
        stream.synchronize()
        error = float((stream.result - 3.0).abs().max())
        return Candidate(stream.step, stream.synchronize, error=error)

    def operand(self, array, precision):
        tensor = torch.from_numpy(array).to(self.task.device).to(gemm.KINDS[precision])
        return tensor.transpose(1, 2).contiguous()  # (B, T, H, D) -> (B, H, T, D)

    def attention(self, name, operands, point):
        *inputs, upstream = operands
        causal, device = point["causal"] == "yes", self.task.device
        attend = (flex(point["length"], causal, device) if name == "flex"
                  else one_kernel(KERNELS[name], causal))

        def forward():
            with torch.no_grad():
                return (attend(*inputs),)

        def backward():
            output = attend(*inputs)
            return (output, *torch.autograd.grad(output, inputs, upstream))

        for tensor in inputs:
            tensor.requires_grad_(point["pass"] != "forward")
        compute = forward if point["pass"] == "forward" else backward
        call_once(compute, name)
        return compute

    def wait(self, result):
        if self.task.device == "cuda":
            torch.cuda.synchronize()

    def head(self, tensor, sample, head):
        return tensor[sample, head].detach().double().cpu().numpy()

    def operators(self, compute):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            compute()
        calls = sorted(profile.key_averages(), key=lambda call: -call.self_cpu_time_total)
        return [call.key for call in calls if bench.TELLING.search(call.key)]


def call_once(compute, name):
    """Call `compute`, or raise `Unsupported` with the reasons that PyTorch writes as warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            compute()
        except RuntimeError as error:
            if not bench.REFUSALS.search(str(error)):
                raise
            lines = [str(each.message).split(" (Triggered")[0] for each in said]
            if "No " in str(error)[:3]:
                raise Unsupported(reasons(lines, name) or f"PyTorch offers no kernel '{name}' for "
                                  "these operands on this device") from error
            raise


def reasons(lines, name):
    """Join the lines that follow the heading of the kernel `name`."""
    found, own = [], False
    for line in lines:
        if "kernel not used because" in line:
            own = line.lower().startswith(HEADINGS.get(name, name))
        elif own:
            found.append(line.strip())
    return " ".join(found)[:300]
