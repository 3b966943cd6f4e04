"""`torch.compile`, refused where what it needs is missing, and work captured in a CUDA graph."""

import os
import shutil

import torch

from runners.protocol import Unsupported

# Calls before a capture, as PyTorch's notes on CUDA graphs ask.
WARM_UP_CALLS = 3


def compiled(function, device):
    """Return `torch.compile` of a function. Raises Unsupported on CPUs without a C++ compiler.

    TorchInductor builds C++ for CPUs. It would fail only at the first step, as a crash.
    """
    compiler = os.environ.get("CXX") or "g++"
    if device == "cpu" and not shutil.which(compiler.split()[0]):
        raise Unsupported(f"torch.compile needs a C++ compiler on CPUs, and {compiler} was not "
                          "found: apt-get install g++")
    return torch.compile(function)


def captured(work, examples, warm_up=WARM_UP_CALLS):
    """Return `work` as one CUDA graph, whose result is the same tensor in every call.

    The graph reads from `examples`, to which a call copies its arguments. The warm-up runs on a
    side stream.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            work(*examples)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog queries the device meanwhile, which the mode "global" would refuse.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = work(*examples)

    def replay(*arguments):
        for example, argument in zip(examples, arguments, strict=True):
            example.copy_(argument, non_blocking=True)
        graph.replay()
        return result

    return replay
