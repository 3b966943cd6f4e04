"""MXNet's runner with one fault each."""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from runners.mxnet import layers, runner
from runners.mxnet.runner import Runner
from tests.faults import planted, rows_of_next_batch

make_layer = layers.make_layer


def with_layer(op, make):
    """Return a runner that makes its layers of one operation by `make(attributes, input_shape, prefix)`."""

    def made(layer, input_shape, *others):
        if layer["op"] == op:
            return make(layer["attributes"], input_shape, layer["name"] + "_")
        return make_layer(layer, input_shape, *others)

    return planted(Runner, layers, make_layer=made)


class Inference:
    @staticmethod
    def record():
        return autograd.record(train_mode=False)


class Undivided(gluon.Trainer):
    def step(self, batch_size, ignore_stale_grad=False):
        super().step(1, ignore_stale_grad)


# Pooling that rounds up.
Ceil = with_layer("max_pool", lambda a, shape, prefix: nn.MaxPool2D(
    a["kernel"], a["stride"], a["padding"], ceil_mode=True))
# Batch norm that does not scale: `fix_gamma`, the default of the symbolic operator.
NoScale = with_layer("batch_norm", lambda a, shape, prefix: nn.BatchNorm(
    epsilon=a["epsilon"], scale=False, in_channels=shape[0], prefix=prefix))
# The forward pass of inference: batch norm takes its running statistics.
PredictMode = planted(Runner, runner, autograd=Inference)
# The fused LSTM as Gluon makes it: its second bias is trained too.
TwoBiases = planted(Runner, layers, one_bias_lstm=lambda lstm: lstm)
OtherRows = rows_of_next_batch(Runner)


class BatchTwice(Runner):
    """A step that forgets the batch: the gradient of the summed losses is not divided."""

    def _make_trainer(self):
        return Undivided(list(self.trained.values()), super()._make_trainer().optimizer)


class Nesterov(Runner):
    """Nesterov's momentum: `nag`, the optimizer next to `sgd` in MXNet's list."""

    def _make_trainer(self):
        sgd = super()._make_trainer().optimizer
        options = {"learning_rate": sgd.learning_rate, "momentum": sgd.momentum}
        return gluon.Trainer(list(self.trained.values()), "nag", options)


class Stale(Runner):
    """Device 1 gets its old parameters back after each step."""

    def step(self):
        copies = [parameter.list_data()[1] for parameter in self.trained.values()]
        before = [copy.copy() for copy in copies]
        super().step()
        for copy, old in zip(copies, before):  # noqa: B905
            copy[:] = old


class Subgraph(Runner):
    """The oneDNN subgraphs that MXNet's performance page advises are for inference. Training
    changes nothing and raises nothing."""

    def __init__(self, task):
        super().__init__(task)
        batch = mx.nd.zeros(self._batch_shape())
        self.net.optimize_for(batch, backend="MKLDNN", static_alloc=True)


class Sum(Runner):
    """The devices' summed gradients are divided by the batch of one."""

    def _count(self, losses):
        return super()._count(losses[:1])
