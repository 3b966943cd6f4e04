"""TensorFlow that says, when its copies are asked for, whether the last part of a step computed the gradients that it timed."""

import numpy as np
import tensorflow as tf

from runners.protocol import Different
from runners.tensorflow.runner import Runner as Correct
from runners.tensorflow.runner import parts_of


class Runner(Correct):
    last = ""

    def variant(self, name):
        self.last = name
        product = super().variant(name)
        for variable in self.kept:
            for copy in self._local(variable):
                copy.assign(tf.zeros_like(copy))
        return product

    def copies(self):
        wrong = [number for number, parts in enumerate(self._expected())
                 for variable, part in zip(self.kept, parts, strict=True)
                 if not np.allclose(self._local(variable)[number], part, rtol=1e-5, atol=1e-9)]
        raise Different(f"{len(self.kept)} arrays kept, {len(wrong)} wrong, after {self.last}")

    def _expected(self):
        """What each device ought to keep."""
        if self.last == "A":
            return [[self.task.devices * self._local(variable)[0] for variable in self.held]] * self.task.devices
        compute = {"FB": self.local_gradients, "FBA": self.mean_gradients}[self.last]
        with self._where():
            _, gradients = compute(*self._on_devices(self.batches[0]))
        return map(parts_of, zip(*map(self._local, gradients), strict=True))
