"""Runs a trained flax.linen model: one jitted `apply`, whose outputs are awaited in each call.

`tuned` adds the XLA flags of JAX's GPU performance tips.
"""

import jax
from training import TUNED

TIERS = ("stock", "tuned")


def prepare(model, inputs, targets, learning_rate, options):
    variables = model.init(jax.random.key(0), inputs)
    flags = TUNED if options.tier == "tuned" and options.device == "cuda" else None
    call = jax.jit(model.apply, compiler_options=flags)

    def run(steps):
        for _ in range(steps):
            jax.block_until_ready(call(variables, inputs))

    return run
