"""PyTensor's runner with one fault each."""

import numpy as np
import pytensor

from runners.pytensor import layers
from runners.pytensor.runner import Runner
from tests.faults import planted


class OldVelocity(Runner):
    """A parameter moves by the velocity before its update: all updates of a function are at once.

    Whoever reads a shared variable among the updates gets its old value, as in Theano.
    """

    def _updates(self, loss):
        rate, momentum = (np.float32(self.network[key]) for key in ("learning_rate", "momentum"))
        gradients = pytensor.grad(loss, list(self.trained.values()))
        return [update for name, gradient in zip(self.trained, gradients, strict=True) for update in (
            (self.velocities[name], momentum * self.velocities[name] + gradient),
            (self.trained[name], self.trained[name] - rate * self.velocities[name]))]


ExactGelu = planted(Runner, layers, LAYERS={
    **layers.LAYERS, "gelu": lambda a, own, x: layers.gelu({**a, "tanh": False}, own, x)})
