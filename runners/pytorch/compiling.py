"""`torch.compile`, refused where what it needs is missing."""

import os
import shutil

import torch

from runners.protocol import Unsupported


def compiled(function, device, mode=None):
    """Return `torch.compile` of a function. Raises Unsupported on CPUs without a C++ compiler.

    TorchInductor builds C++ for CPUs. It would fail only at the first step, as a crash.
    """
    compiler = os.environ.get("CXX") or "g++"
    if device == "cpu" and not shutil.which(compiler.split()[0]):
        raise Unsupported(f"torch.compile needs a C++ compiler on CPUs, and {compiler} was not "
                          "found: apt-get install g++")
    return torch.compile(function, mode=mode)
