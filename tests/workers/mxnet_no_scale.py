"""MXNet with batch norm that does not scale: `fix_gamma`, the default of its symbolic operator."""

from mxnet.gluon import nn

from runners.mxnet import runner
from runners.mxnet.runner import Runner as Correct


def make_layer(layer, input_shape, task, layout):
    if layer["op"] == "batch_norm":
        return nn.BatchNorm(epsilon=layer["attributes"]["epsilon"], scale=False, in_channels=input_shape[0])
    return correct(layer, input_shape, task, layout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
