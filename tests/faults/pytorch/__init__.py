"""PyTorch's runner on one device with one fault each."""

import gc
import os
import sys
import time
from unittest import mock

import torch
from torch import nn

from runners.pytorch import layers, runner
from runners.pytorch.layers import Net
from runners.pytorch.runner import Runner
from tests.faults import planted

make_layer, set_arithmetic = layers.make_layer, runner.set_arithmetic


def with_layer(op, make):
    """Return a runner that makes its layers of one operation by `make(layer, input_shape)`."""

    def made(layer, input_shape):
        if layer["op"] == op:
            return make(layer, input_shape)
        return make_layer(layer, input_shape)

    return planted(Runner, layers, make_layer=made)


def ceil(layer, input_shape):
    a = layer["attributes"]
    return nn.MaxPool2d(a["kernel"], a["stride"], a["padding"], ceil_mode=True)


def lrn_alpha(layer, input_shape):
    a = layer["attributes"]
    return nn.LocalResponseNorm(a["size"], a["alpha"] * a["size"], a["beta"])


def no_groups(layer, input_shape):
    one_group = {**layer, "attributes": {**layer["attributes"], "groups": 1}}
    return make_layer(one_group, input_shape)


def no_scale(layer, input_shape):
    return nn.BatchNorm2d(input_shape[0], eps=layer["attributes"]["epsilon"], affine=False)


def with_tf32(task):
    set_arithmetic(task)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


class NetWithImage(Net):
    def __init__(self, network, *options):
        super().__init__(network, *options)
        image = nn.Parameter(torch.zeros(network["input_shape"]))
        self.parts.register_parameter("image", image)


# Pooling that rounds up, as Caffe pools unless told otherwise.
Ceil = with_layer("max_pool", ceil)
# LRN as TensorFlow defines it: alpha is not divided by the size.
LrnAlpha = with_layer("lrn", lrn_alpha)
# One column where CaffeNet has two, as many a port of AlexNet.
NoGroups = with_layer("conv2d", no_groups)
# Batch norm that does not scale, as DLBench's Caffe files had it.
NoScale = with_layer("batch_norm", no_scale)
# The input is a trained variable, as in DLBench's TensorFlow scripts.
TrainableInput = planted(Runner, runner, Net=NetWithImage)


class LearningRate(Runner):
    """A learning rate of its own, as three of DLBench's five tools had."""

    def __init__(self, task):
        super().__init__(task)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1


def no_primitive(*sizes):
    raise RuntimeError("could not create a primitive descriptor for the LSTM. Run workload with ONEDNN_VERBOSE=all")


# On a processor without oneDNN's LSTM; the network's own is no `nn.LSTM`.
WithoutPrimitive = planted(Runner, torch.nn, LSTM=no_primitive)


class Nesterov(Runner):
    """Nesterov's momentum, as Torch's DLBench scripts had it."""

    def __init__(self, task):
        super().__init__(task)
        for group in self.optimizer.param_groups:
            group["nesterov"] = True


class ReturnsMemory(Runner):
    """Logs, each time the cached memory is emptied, how many models are still there."""

    @staticmethod
    def return_memory():
        with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, empty_cache=count_models):
            Runner.return_memory()


def count_models():
    models = sum(isinstance(each, Net) for each in gc.get_objects())
    sys.stderr.write(f"emptied beside {models} models\n")


class Slower5(Runner):
    """Five per cent of extra work in each step: what `dlbench compare` must find."""

    def step(self):
        began = time.perf_counter()
        super().step()
        ends = time.perf_counter() + 0.05 * (time.perf_counter() - began)
        while time.perf_counter() < ends:
            pass


class Tf32(planted(Runner, runner, set_arithmetic=with_tf32)):
    """TF32 left on, as it comes in cuDNN and as many scripts set it for products."""

    @staticmethod
    def describe():
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # cuBLAS reads it when CUDA starts
        return Runner.describe()
