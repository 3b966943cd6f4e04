"""JAX whose device 1 never applies an update."""

import jax
import jax.numpy as jnp
from jax import lax

from runners.jax import runner
from runners.jax.runner import Runner

__all__ = ["Runner"]


def sgd(parameters, velocity, gradients, learning_rate, momentum):
    moved, velocity = correct(parameters, velocity, gradients, learning_rate, momentum)
    stale = lax.axis_index("devices") == 1
    return jax.tree.map(lambda old, new: jnp.where(stale, old, new), parameters, moved), velocity


correct = runner.sgd
runner.sgd = sgd
