"""TensorFlow with a mean of losses taken by hand, so that nobody divides by the number of devices, as Keras's own losses do."""

import keras
import tensorflow as tf

from runners.tensorflow.runner import Runner as Correct


class Loss:
    def __init__(self, from_logits):
        self.losses = entropy(from_logits=from_logits, reduction="none")

    def __call__(self, targets, logits):
        return tf.reduce_mean(self.losses(targets, logits))


class Runner(Correct):
    def loss(self):
        return super().loss() / self.task.devices


entropy = keras.losses.SparseCategoricalCrossentropy
keras.losses.SparseCategoricalCrossentropy = Loss
