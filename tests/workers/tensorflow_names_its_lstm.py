"""Refuses every network, saying which of Keras's LSTM paths it would take."""

from runners import protocol
from runners.tensorflow import runner


class Runner(runner.Runner):
    def __init__(self, task):
        super().__init__(task)
        paths = {str(layer.use_cudnn) for layer in self.model.layers if hasattr(layer, "use_cudnn")}
        raise protocol.Different("use_cudnn " + ", ".join(sorted(paths)))
