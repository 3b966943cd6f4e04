"""MXNet with pooling that rounds up."""

from mxnet.gluon import nn

from runners.mxnet import runner
from runners.mxnet.runner import Runner as Correct


def make_layer(layer, input_shape, task, layout):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return correct(layer, input_shape, task, layout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
