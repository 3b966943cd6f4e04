"""PyTorch with pooling that rounds up, as Caffe pools unless told otherwise."""

from torch import nn

from runners import pytorch_runner
from runners.pytorch_runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2d(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return correct(layer, input_shape, dropout)


correct = pytorch_runner.make_layer
pytorch_runner.make_layer = make_layer
Runner = Correct
