"""PyTorch with TF32 left on, as it comes in cuDNN and as many scripts set it for products."""

import os

os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # cuBLAS reads it when CUDA starts

import torch

from runners.pytorch import runner
from runners.pytorch.runner import Runner

__all__ = ["Runner"]

correct = runner.set_arithmetic


def set_arithmetic(task):
    correct(task)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


runner.set_arithmetic = set_arithmetic
