"""What each tier and precision sets in JAX, and what JAX refuses."""

import functools
import os

import jax
import jax.numpy as jnp
from jax import lax

from runners.jax.layers import Style
from runners.jax.sharding import STRATEGIES
from runners.protocol import Unsupported

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
TRITON, OVERLAP = "xla_gpu_triton_gemm_any", "xla_gpu_enable_latency_hiding_scheduler"
COMMAND_BUFFERS = "xla_gpu_enable_command_buffer"
GRAPHS = COMMAND_BUFFERS + "=+CONVOLUTION"
# An option replaces XLA's list of what it records in CUDA graphs, so its own list comes first. With
# WHILE too LSTM-32 was slower (H200).
RECORDED = ("FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,DYNAMIC_SLICE_FUSION,"
            "CONVOLUTION")
# Setting -> XLA's flag and its value, for `compiler_options`.
FLAGS = {TRITON: (TRITON, True), OVERLAP: (OVERLAP, True), GRAPHS: (COMMAND_BUFFERS, RECORDED)}
# Words of an LSTM in one iteration of the compiled loop, when tuned.
UNROLL = 8
UNROLLED = f"scan unroll={UNROLL}"
# `step` says how.
SENT_EARLY = "the last layers' gradients sent first"
CUDNN_ATTENTION = "cuDNN attention"


def tiers(task):
    """Return what each tier sets, as JAX's GPU performance tips and OpenXLA's flags name it."""
    tuned = ["jax.jit"]
    if task.device == "cuda":
        tuned.append(TRITON)
        if task.devices > 1:
            tuned.append(OVERLAP)
        # On two GPUs XLA (JAX 0.11.2) makes the second one's cuDNN handle while it records a graph.
        # cuDNN refuses that, and the process hangs or aborts.
        elif has(task, "conv2d") and records_convolutions():
            tuned.append(GRAPHS)
    if task.devices > 1 and task.strategy not in STRATEGIES:
        tuned.append(SENT_EARLY)
    if has(task, "lstm"):
        tuned.append(UNROLLED)
    if task.device == "cuda" and cudnn_attends(task):
        tuned.append(CUDNN_ATTENTION)
    return {"stock": ["jax.jit"], "compiled": ["jax.jit"], "tuned": tuned,
            "uncompiled": "JAX's operations one by one are for finding errors"}


@functools.cache
def records_convolutions():
    """Return whether XLA can record convolutions in CUDA graphs: older ones refuse the option."""
    option = dict([FLAGS[GRAPHS]])
    try:
        jax.jit(lambda: 0, compiler_options=option).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def compiler_options(settings):
    """Return XLA's flags for these settings. XLA_FLAGS overrides that of command buffers.

    A trace switches command buffers off by XLA_FLAGS.
    """
    flags = dict(FLAGS[setting] for setting in settings if setting in FLAGS)
    if COMMAND_BUFFERS in os.environ.get("XLA_FLAGS", ""):
        flags.pop(COMMAND_BUFFERS, None)
    return flags or None


def refuse_attention_in_fp16(task):
    """XLA's CPU client has no product of float16 with float32 sums, which JAX's attention asks for.
    """
    if has(task, "attention") and task.precision == "fp16" and task.device == "cpu":
        raise Unsupported("fp16 attention: JAX on a CPU says \"The precision 'F16_F16_F32' is not "
                          'supported by dot_general on CPU"')


def has(task, operation):
    return any(layer["op"].endswith(operation) for layer in task.network["layers"])


def cudnn_attends(task):
    """Return whether cuDNN has kernels for the network's attention: not float32."""
    return has(task, "attention") and DTYPES[task.precision] != jnp.float32


def choose_style(task, unroll=1, attention=None):
    """fp32 is IEEE fp32 in every product; with `Precision.DEFAULT` XLA takes TF32 on GPUs."""
    precision = lax.Precision.HIGHEST if task.precision == "fp32" else lax.Precision.DEFAULT
    return Style(DTYPES[task.precision], precision, unroll, attention)
