"""JAX whose last device trains on its rows of the next batch."""

import numpy as np

from runners.jax.runner import Runner as Correct


class Runner(Correct):
    def feed(self, inputs, targets, residence):
        inputs, targets = inputs.copy(), targets.copy()
        for samples in (inputs, targets):
            samples[:, -self.task.batch:] = np.roll(samples, 1, axis=0)[:, -self.task.batch:]
        super().feed(inputs, targets, residence)
