"""The reference with the input as a trained variable, as DLBench's TensorFlow scripts had it."""

import numpy as np

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def _build(self):
        super()._build()
        self.weights["image"] = np.zeros(self.network["input_shape"])
        self.velocities["image"] = np.zeros(self.network["input_shape"])

    def load(self, weights):
        super().load(dict(weights, image=self.weights["image"]))
