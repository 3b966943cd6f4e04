"""PyTorch with one column where CaffeNet has two, as many a port of AlexNet."""

from runners import pytorch_runner
from runners.pytorch_runner import Runner as Correct


def make_layer(layer, input_shape, dropout):
    one_group = {**layer["attributes"], "groups": 1}
    return correct({**layer, "attributes": one_group} if layer["op"] == "conv2d" else layer, input_shape, dropout)


correct = pytorch_runner.make_layer
pytorch_runner.make_layer = make_layer
Runner = Correct
