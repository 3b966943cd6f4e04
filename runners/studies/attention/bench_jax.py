"""The attention study in JAX: compiled `jax.nn.dot_product_attention`, with XLA's or cuDNN's code.

Operands are (B, T, H, D). Each implementation is named, because JAX chooses silently without.
"""

import re
from functools import partial

import jax
import jax.numpy as jnp

from runners.studies.attention import bench

KINDS = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
# An instruction of XLA's text, as in `%dot.1 = f32[2,2]{1,0} dot(%a, %b)`.
INSTRUCTION = re.compile(r" = \S+ ([a-z][a-z0-9-]*)\(")
TARGET = re.compile(r'custom_call_target="([^"]+)"')


class Bench(bench.AttentionBench):
    LIBRARY = jax
    IMPLEMENTATIONS = ("xla", "cudnn")

    def __init__(self, task):
        super().__init__(task)
        self.device = jax.devices("gpu" if task.device == "cuda" else "cpu")[0]

    def candidates(self, point):
        # The attention's products have no argument for it; by default fp32 is TF32 on a GPU.
        jax.config.update("jax_default_matmul_precision",
                          "highest" if point["precision"] == "fp32" else None)
        return super().candidates(point)

    def operand(self, array, precision):
        # Cast here: on the device it would be compiled for each shape.
        return jax.device_put(array.astype(KINDS[precision]), self.device)

    def attention(self, name, operands, point):
        attend = partial(jax.nn.dot_product_attention, implementation=name,
                         is_causal=point["causal"] == "yes")
        if point["pass"] == "forward":
            return partial(jax.jit(lambda *inputs: (attend(*inputs),)), *operands[:3])

        def backward(*operands):
            output, pull = jax.vjp(attend, *operands[:3])
            return (output, *pull(operands[3]))

        return partial(jax.jit(backward), *operands)

    def wait(self, result):
        jax.block_until_ready(result)

    def head(self, tensor, sample, head):
        return jax.device_get(tensor)[sample, :, head]

    def operators(self, compute):
        text = compute.func.lower(*compute.args).compile().as_text()
        names = {*INSTRUCTION.findall(text), *TARGET.findall(text)}
        return sorted(filter(bench.TELLING.search, names))
