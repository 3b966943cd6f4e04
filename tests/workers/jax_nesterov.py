"""JAX with Nesterov's momentum, as Torch's DLBench scripts had it."""

import jax

from runners.jax import runner
from runners.jax.runner import Runner

__all__ = ["Runner"]


def sgd(parameters, velocity, gradients, learning_rate, momentum):
    velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    ahead = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    return jax.tree.map(lambda w, d: w - learning_rate * d, parameters, ahead), velocity


runner.sgd = sgd
