"""PyTorch under autocast whatever was asked for."""

from runners.pytorch import inference


class Autocast(inference.PyTorch):
    def _run(self, inputs):
        self.task.precision = "bf16"
        return super()._run(inputs)
