"""PyTorch with batch norm that does not scale, as DLBench's Caffe files had it."""

from torch import nn

from runners.pytorch import runner
from runners.pytorch.runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    if layer["op"] == "batch_norm":
        return nn.BatchNorm2d(input_shape[0], eps=layer["attributes"]["epsilon"], affine=False)
    return correct(layer, input_shape, dropout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
