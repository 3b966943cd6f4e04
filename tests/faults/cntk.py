"""CNTK's runner with one fault each."""

import ctypes

import cntk as C

from runners.cntk import layers, runner, transformers
from runners.cntk.runner import Runner
from runners.protocol import Unsupported
from tests.faults import planted, rows_of_next_batch

build, make_layer = layers.build, layers.make_layer


def make_ceil(layer, input_shape, task, seed):
    if layer["op"] != "max_pool":
        return make_layer(layer, input_shape, task, seed)
    kernel, stride = layer["attributes"]["kernel"], layer["attributes"]["stride"]
    return lambda x: C.pooling(
        x, C.MAX_POOLING, (kernel, kernel), (stride, stride), ceil_out_dim=True)


def with_image(task, source, seed):
    image = C.Parameter(source.shape, init=0.0, name="image")
    return build(task, source + image, seed)


def per_sample(parameters, network):
    rate = C.learning_parameter_schedule_per_sample(network["learning_rate"])
    momentum = C.momentum_schedule(network["momentum"])
    return C.momentum_sgd(parameters, rate, momentum, unit_gain=False)


def unit_gain(parameters, network):
    return C.momentum_sgd(parameters, network["learning_rate"], network["momentum"],
                          minibatch_size=C.learners.IGNORE)


# Pooling that rounds up, as Caffe pools unless told otherwise.
Ceil = planted(Runner, layers, make_layer=make_ceil)
# The LSTM's gates in CNTK's own order.
Gates = planted(Runner, layers, EXCHANGE=[0, 1, 2, 3])
# GELU by tanh, which CNTK has, where the network asks for the error function.
TanhGelu = planted(Runner, layers, LAYERS=dict(
    layers.LAYERS, gelu=lambda a, shape: transformers.gelu(dict(a, tanh=True), shape)))
# A learning rate per sample, as in CNTK's older scripts: the batch's sum moves the weights.
PerSample = planted(Runner, runner, make_learner=per_sample)
# CNTK's default momentum, which scales each gradient by 1 - m.
UnitGain = planted(Runner, runner, make_learner=unit_gain)
# A trained variable beside the input, as DLBench's TensorFlow scripts had it.
TrainableInput = planted(Runner, runner, build=with_image)
OtherRows = rows_of_next_batch(Runner)


class Alone(Runner):
    """Ranks without the distributed learner: each trains on its own part of the batch alone."""

    def _trainer(self, learner, strategy):
        return self._local_trainer(learner)


class TrainedBefore(Runner):
    """Trains two steps from host memory before the weights are loaded: no fault."""

    def load(self, weights):
        super().load(weights)
        for _ in self.ring:
            self.step()
        super().load(weights)

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, "host")


class NoReset:
    def reset_smoothed_gradients(self):
        pass


class KeepsMomentum(TrainedBefore):
    """Keeps the momentum of the steps before the weights were loaded again."""

    def __init__(self, task):
        super().__init__(task)
        self.learner = NoReset()


class Embedding(layers.Embedding):
    def __call__(self, words):
        Embedding.rows = super().__call__(words)
        return Embedding.rows


class SparseEmbedding(planted(Runner, layers, Embedding=Embedding)):
    """Trains its table by one-hot words, as CNTK's layers library embeds: momentum skips the words
    that are not in the batch.

    Both networks share their weights.
    """

    def __init__(self, task):
        super().__init__(task)
        self.words = C.sequence.input_variable(task.network["vocabulary"], is_sparse=True)
        rows = C.times(self.words, self.trained["embedding1.weight"])
        criterion = self.criterion.clone("share", {Embedding.rows: rows})
        self.trainer = C.Trainer(criterion, criterion, [self.learner])

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, residence)
        vocabulary = self.words.shape[0]
        self.one_hot = [C.Value.one_hot(words.tolist(), vocabulary) for words in inputs]

    def step(self):
        position = self.position % len(self.ring)
        arguments = self.trainer.loss_function.arguments
        target = next(each for each in arguments if each.uid != self.words.uid)
        self.trainer.train_minibatch({self.words: self.one_hot[position],
                                      target: self.ring[position][1]})
        self.position += 1


class Threads(Runner):
    """Refuses the task with the number of threads that its OpenMP library has been given."""

    def __init__(self, task):
        super().__init__(task)
        raise Unsupported(f"{ctypes.CDLL('libiomp5.so').omp_get_max_threads()} threads")
