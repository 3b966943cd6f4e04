"""PyTorch with one column where CaffeNet has two, as many a port of AlexNet."""

from runners.pytorch import runner
from runners.pytorch.runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    one_group = {**layer["attributes"], "groups": 1}
    return correct({**layer, "attributes": one_group} if layer["op"] == "conv2d" else layer, input_shape, dropout)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
