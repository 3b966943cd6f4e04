"""Paddle with pooling that rounds up, as Caffe pools unless told otherwise."""

from paddle import nn

from runners.paddle import runner
from runners.paddle.runner import Runner

__all__ = ["Runner"]


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return correct(layer, input_shape, dropout)


correct = runner.make_layer
runner.make_layer = make_layer
