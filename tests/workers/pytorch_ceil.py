"""PyTorch with pooling that rounds up, as Caffe pools unless told otherwise."""

from torch import nn

from runners.pytorch import runner
from runners.pytorch.runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2d(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return correct(layer, input_shape, dropout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
