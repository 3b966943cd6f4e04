"""Paddle's runner with one fault each."""

import ctypes
import functools
import os
from concurrent.futures import ThreadPoolExecutor

import paddle
from paddle import nn

from runners.paddle import layers, runner
from runners.paddle.runner import Runner
from runners.protocol import Unsupported
from tests.faults import planted, rows_of_next_batch

make_layer = layers.make_layer


def make_ceil(layer, input_shape):
    a = layer["attributes"]
    if layer["op"] == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=True)
    return make_layer(layer, input_shape)


# Ranks that forget `DataParallel`: each trains on its own part of the batch alone.
Alone = planted(Runner, paddle, DataParallel=lambda layer: layer)
# Pooling that rounds up, as Caffe pools unless told otherwise.
Ceil = planted(Runner, layers, make_layer=make_ceil)
# Nesterov's momentum, as Torch's DLBench scripts had it.
Nesterov = planted(Runner, paddle.optimizer, Momentum=functools.partial(
    paddle.optimizer.Momentum, use_nesterov=True))
# Both bias vectors of the LSTM are trained, as it comes.
SecondBias = planted(Runner, runner, trained=lambda model: dict(model.named_parameters()))
OtherRows = rows_of_next_batch(Runner)


class Sums(Alone):
    """Ranks that add their gradients up by hand and do not divide: `all_reduce` is a sum."""

    def _backward(self, mean_loss, batch):
        loss = super()._backward(mean_loss, batch)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                paddle.distributed.all_reduce(parameter.grad)
        return loss


class Threads(Runner):
    """Refuses the task with the threads that OpenMP gives to each of two of Paddle's threads."""

    def __init__(self, task):
        super().__init__(task)
        library = ctypes.CDLL(os.path.join(paddle.sysconfig.get_lib(), "libiomp5.so"))
        with ThreadPoolExecutor(1) as other:
            elsewhere = other.submit(library.omp_get_max_threads).result()
        here = library.omp_get_max_threads()
        raise Unsupported(f"OpenMP gives {here} threads here and {elsewhere} elsewhere")


class Unreachable(Runner):
    """Rank 1 looks for the others at a port where nobody listens."""

    def __init__(self, task):
        if os.environ["PADDLE_TRAINER_ID"] == "1":
            os.environ["PADDLE_MASTER"] = "127.0.0.1:1"
        super().__init__(task)
