"""FCN-5 of DLBench in Keras 3: 784-2048-4096-1024-10 with sigmoids."""

import tensorflow as tf
import training
from keras import Input, Sequential, layers


def build(options):
    training.set_precision(options)
    hidden = [layers.Dense(width, activation="sigmoid") for width in (2048, 4096, 1024)]
    model = Sequential([Input((784,)), *hidden, layers.Dense(10)])
    return model, tf.random.normal((options.batch, 784)), tf.range(options.batch) % 10, 0.05
