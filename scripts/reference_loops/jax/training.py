"""Trains a flax.linen model with optax, as flax's ImageNet example does: one jitted, donated step.

`tuned` adds the XLA flags of JAX's GPU performance tips.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

TIERS = ("stock", "tuned")
TUNED = {"xla_gpu_triton_gemm_any": True, "xla_gpu_enable_latency_hiding_scheduler": True}


def dtype_of(options):
    """Return the type in which layers compute; parameters are float32."""
    matmul = {"fp32": "highest", "tf32": "tensorfloat32"}
    jax.config.update("jax_default_matmul_precision", matmul.get(options.precision, "default"))
    return {"bf16": jnp.bfloat16, "fp16": jnp.float16}.get(options.precision, jnp.float32)


def cudnn_attention(options):
    """Tell whether layers take cuDNN's attention, which has no float32."""
    return options.tier == "tuned" and options.device == "cuda" and options.precision == "bf16"


class Block(nn.Module):
    """A Transformer's block with the norms first: attention, then a hidden layer of GELU."""

    width: int
    heads: int
    dtype: object
    cudnn: bool
    epsilon: float = 1e-6
    causal: bool = False
    approximate: bool = False

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(epsilon=self.epsilon, dtype=self.dtype)(x)
        y = nn.Dense(3 * self.width, dtype=self.dtype)(y).reshape(*x.shape[:2], 3, self.heads, -1)
        y = jax.nn.dot_product_attention(y[:, :, 0], y[:, :, 1], y[:, :, 2], is_causal=self.causal,
                                         implementation="cudnn" if self.cudnn else None)
        x = x + nn.Dense(self.width, dtype=self.dtype)(y.reshape(x.shape))
        y = nn.LayerNorm(epsilon=self.epsilon, dtype=self.dtype)(x)
        y = nn.gelu(nn.Dense(4 * self.width, dtype=self.dtype)(y), approximate=self.approximate)
        return x + nn.Dense(self.width, dtype=self.dtype)(y)


def prepare(model, inputs, targets, learning_rate, options):
    optimizer = optax.sgd(learning_rate, momentum=0.9)
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(2)}, inputs)
    rest = {name: value for name, value in variables.items() if name != "params"}
    state = (variables["params"], rest, optimizer.init(variables["params"]), jax.random.key(3))

    def train_step(state, inputs, targets):
        parameters, rest, momentum, key = state
        key, masks = jax.random.split(key)

        def loss_of(parameters):
            logits, updated = model.apply({"params": parameters, **rest}, inputs, mutable=[*rest],
                                          rngs={"dropout": masks})
            losses = optax.softmax_cross_entropy_with_integer_labels(
                logits.astype(jnp.float32), targets)
            return losses.mean(), updated

        gradients, updated = jax.grad(loss_of, has_aux=True)(parameters)
        updates, momentum = optimizer.update(gradients, momentum, parameters)
        return optax.apply_updates(parameters, updates), updated, momentum, key

    flags = TUNED if options.tier == "tuned" and options.device == "cuda" else None
    step = jax.jit(train_step, donate_argnums=0, compiler_options=flags)

    def run(steps):
        nonlocal state
        for _ in range(steps):
            state = step(state, inputs, targets)
        jax.block_until_ready(state)

    return run
