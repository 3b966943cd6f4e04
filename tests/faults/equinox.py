"""Equinox's runner with one fault each."""

import equinox as eqx

from runners.equinox import layers
from runners.equinox.runner import Runner
from tests.faults import planted


class Forgetful(Runner):
    """A new state of the optimiser in each step: no momentum."""

    def step(self):
        self.moments = self.optimizer.init(eqx.filter(self.model, eqx.is_inexact_array))
        super().step()


# GELU's tanh form is JAX's default, the exact one PyTorch's.
ExactGelu = planted(Runner, layers, LAYERS={
    **layers.LAYERS, "gelu": lambda a, shape: lambda x: layers.jax.nn.gelu(x, approximate=False)})
