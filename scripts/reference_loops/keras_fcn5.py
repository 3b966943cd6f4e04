"""FCN-5 of DLBench in Keras 3: 784-2048-4096-1024-10 with sigmoids."""

import windows

options = windows.arguments(("stock", "compiled", "uncompiled"))

import keras_training  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import Input, Sequential, layers  # noqa: E402

keras_training.set_precision(options)
hidden = [layers.Dense(width, activation="sigmoid") for width in (2048, 4096, 1024)]
keras_training.train(
    Sequential([Input((784,)), *hidden, layers.Dense(10)]),
    tf.random.normal((options.batch, 784)), tf.range(options.batch) % 10, 0.05, options)
