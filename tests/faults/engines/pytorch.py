"""PyTorch under autocast whatever was asked for."""

from runners.inference import Inference
from runners.pytorch import inference


class Autocast(inference.PyTorch):
    def _run(self, inputs):
        self.task.precision = "bf16"
        return super()._run(inputs)


def session():
    return Inference(Autocast)
