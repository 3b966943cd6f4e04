"""How `training` reads and writes TensorFlow's state, and its faults in Keras's own code."""

from functools import partial

import keras
import tensorflow as tf

from runners.tensorflow.runner import Runner
from tests.faults import planted

# The axis of an LSTM's gates.
GATES = -1
layers, SGD = keras.layers, keras.optimizers.SGD
Conv2D, LSTM, ZeroPadding2D = layers.Conv2D, layers.LSTM, layers.ZeroPadding2D
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def read(runner):
    return {key: variable.numpy().copy() for key, variable in state_of(runner).items()}


def write(runner, values):
    variables = state_of(runner)
    for key, value in values.items():
        variables[key].assign(value)


def state_of(runner):
    kinds = {"parameter": runner.variables.values(), "velocity": runner.optimizer.momentums}
    return {(kind, name): variable for kind, variables in kinds.items()
            for name, variable in zip(runner.variables, variables)}  # noqa: B905


class Scaled(SGD):
    """Takes the gradients times `factor`."""

    def __init__(self, rate, factor, **options):
        super().__init__(rate, **options)
        self.factor = factor

    def apply(self, gradients, variables):
        dense = [self.factor * tf.convert_to_tensor(gradient) for gradient in gradients]
        return super().apply(dense, variables)


class Aside(Conv2D):
    """Pads two rows and columns at the top left in place of one on each side."""

    def convolution_op(self, inputs, kernel):
        both = [self.kernel_size[0] - 1 if self.padding == "same" else 0, 0]
        inputs = tf.pad(inputs, [[0, 0], both, both, [0, 0]])
        return keras.ops.conv(inputs, kernel, strides=list(self.strides), padding="valid")


def zeros_aside(padding, **options):
    return ZeroPadding2D(((2 * padding, 0), (2 * padding, 0)), **options)


class Halves(LSTM):
    """Sends no gradients from the second half of the words to the first."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        half = (sequences.shape[1] + 1) // 2
        self.return_state = True
        first, *state = super().call(sequences[:, :half], training=training)
        state = [tf.stop_gradient(part) for part in state]
        second, *_ = super().call(sequences[:, half:], state, training=training)
        self.return_state = False
        return tf.concat([first, second], axis=1)


def with_loss(loss):
    return planted(Runner, keras.losses, SparseCategoricalCrossentropy=lambda from_logits: loss)


def smoothed(targets, logits):
    uniform = -tf.reduce_mean(tf.nn.log_softmax(tf.cast(logits, tf.float32)))
    return 0.9 * entropy(targets, logits) + 0.1 * uniform


def of_sum(targets, logits):
    """Report the mean and give the gradients of the sum."""
    mean = entropy(targets, logits)
    samples = tf.size(targets, mean.dtype)
    return mean + (samples - 1) * (mean - tf.stop_gradient(mean))


def with_optimizer(optimizer):
    return planted(Runner, keras.optimizers, SGD=optimizer)


def Gradients(number):
    return with_optimizer(partial(Scaled, factor=number / 100))


Nesterov = with_optimizer(partial(SGD, nesterov=True))
WeightDecay = with_optimizer(partial(SGD, weight_decay=1e-4))
LabelSmoothing = with_loss(smoothed)
SumForMean = with_loss(of_sum)
PaddingAside = planted(Runner, layers, Conv2D=Aside, ZeroPadding2D=zeros_aside)
Truncated = planted(Runner, layers, LSTM=Halves)
