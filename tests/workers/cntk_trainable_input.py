"""CNTK with a trained variable beside the input, as DLBench's TensorFlow scripts had it."""

import cntk as C

from runners.cntk import runner
from runners.cntk.runner import Runner as Correct


def build(network, source, dropout, seed):
    return correct(network, source + C.Parameter(source.shape, init=0.0, name="image"), dropout, seed)


correct = runner.build
runner.build = build
Runner = Correct
