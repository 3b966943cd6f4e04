"""MXNet that records the forward pass of inference: batch norm takes its running statistics."""

from mxnet import autograd

from runners import mxnet_runner
from runners.mxnet_runner import Runner as Correct


class PredictMode:
    @staticmethod
    def record():
        return autograd.record(train_mode=False)


mxnet_runner.autograd = PredictMode
Runner = Correct
