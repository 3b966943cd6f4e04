"""Paddle whose rank 1 trains on its rows of the next batch."""

import numpy as np

from runners.paddle.runner import Runner as Correct


class Runner(Correct):
    def feed(self, inputs, targets, residence):
        if self.task.rank == 1:
            inputs, targets = (np.roll(samples, 1, axis=0) for samples in (inputs, targets))
        super().feed(inputs, targets, residence)
