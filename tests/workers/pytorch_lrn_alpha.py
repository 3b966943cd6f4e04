"""PyTorch with LRN as TensorFlow defines it: alpha is not divided by the size, so the same number means five times as much."""

from torch import nn

from runners import pytorch_runner
from runners.pytorch_runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "lrn":
        return nn.LocalResponseNorm(a["size"], a["alpha"] * a["size"], a["beta"])
    return correct(layer, input_shape, dropout)


correct = pytorch_runner.make_layer
pytorch_runner.make_layer = make_layer
Runner = Correct
