"""TensorFlow with Keras's own random streams, the same on every device."""

from tests.workers.tensorflow_losses import Runner as Correct


class Runner(Correct):
    def _part_seeds(self):
        pass
