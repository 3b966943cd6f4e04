"""PyTorch with LRN as TensorFlow defines it: alpha is not divided by the size, so the same number means five times as much."""

from torch import nn

from runners.pytorch import runner
from runners.pytorch.runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    a = layer["attributes"]
    if layer["op"] == "lrn":
        return nn.LocalResponseNorm(a["size"], a["alpha"] * a["size"], a["beta"])
    return correct(layer, input_shape, dropout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
