"""PyTorch's runner whose rank 1 trains on its rows of the next batch, as with a sampler that shuffles by another seed."""

import numpy as np

from runners.pytorch.runner import Runner as PyTorch


class Runner(PyTorch):
    def feed(self, inputs, targets, residence):
        if self.task.rank == 1:
            inputs, targets = (np.roll(samples, 1, axis=0) for samples in (inputs, targets))
        super().feed(inputs, targets, residence)
