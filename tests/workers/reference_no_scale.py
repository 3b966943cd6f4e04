"""The reference with batch norm that does not scale, as DLBench's Caffe files had it; the scale is there and learns nothing."""

import numpy as np

from runners.reference.runner import OPERATIONS
from runners.reference.runner import Runner as Reference

correct, correct_backward = OPERATIONS["batch_norm"]


def without_scale(w):
    return {"scale": np.ones_like(w["scale"]), "shift": w["shift"]}


def forward(a, w, x):
    return correct(a, without_scale(w), x)


def backward(a, w, saved, dy):
    inputs, parameters = correct_backward(a, without_scale(w), saved, dy)
    return inputs, dict(parameters, scale=np.zeros_like(w["scale"]))


class Runner(Reference):
    operations = dict(OPERATIONS, batch_norm=(forward, backward))
