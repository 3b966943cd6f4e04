"""CNTK with pooling that rounds up, as Caffe pools unless told otherwise."""

import cntk as C

from runners.cntk import runner
from runners.cntk.runner import Runner as Correct


def make_layer(layer, input_shape, dropout, seed):
    if layer["op"] == "max_pool":
        a = layer["attributes"]
        strides = (a["stride"], a["stride"])
        return lambda x: C.pooling(x, C.MAX_POOLING, (a["kernel"], a["kernel"]), strides, ceil_out_dim=True)
    return correct(layer, input_shape, dropout, seed)


correct = runner.make_layer
runner.make_layer = make_layer
Runner = Correct
