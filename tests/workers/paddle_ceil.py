"""Paddle with pooling that rounds up, as Caffe pools unless told otherwise."""

from paddle import nn

from runners import paddle_runner
from runners.paddle_runner import Runner

__all__ = ["Runner"]


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return correct(layer, input_shape, dropout)


correct = paddle_runner.make_layer
paddle_runner.make_layer = make_layer
