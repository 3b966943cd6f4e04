"""PyTorch with Nesterov's momentum, as Torch's DLBench scripts had it."""

from runners.pytorch.runner import Runner as Correct


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        for group in self.optimizer.param_groups:
            group["nesterov"] = True
