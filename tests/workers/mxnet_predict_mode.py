"""MXNet that records the forward pass of inference: batch norm takes its running statistics."""

from mxnet import autograd

from runners.mxnet import runner
from runners.mxnet.runner import Runner as Correct


class PredictMode:
    @staticmethod
    def record():
        return autograd.record(train_mode=False)


runner.autograd = PredictMode
Runner = Correct
