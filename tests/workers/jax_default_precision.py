"""JAX as it comes: float32 products in its default precision, TF32 on a GPU that has it, and no override of the harness."""

import os

os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # cuBLAS reads it when CUDA starts

from jax import lax

from runners.jax import runner
from runners.jax.runner import Runner

__all__ = ["Runner"]

correct = runner.choose_style


def choose_style(task):
    return correct(task)._replace(precision=lax.Precision.DEFAULT)


runner.choose_style = choose_style
