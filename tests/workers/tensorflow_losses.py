"""TensorFlow with the same rows on every device: says, when its copies are asked for, how many losses the last step had."""

import numpy as np

from runners.protocol import Different
from runners.tensorflow.runner import Runner as Correct


class Runner(Correct):
    def feed(self, inputs, targets, residence):
        rows = np.tile(np.arange(self.task.batch), self.task.devices)
        super().feed(inputs[:, rows], targets[:, rows], residence)

    def copies(self):
        raise Different(f"{len({float(loss) for loss in self._local(self.last_loss)})} losses")
