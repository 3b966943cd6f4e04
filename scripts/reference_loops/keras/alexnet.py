"""AlexNet of the original paper in Keras 3: without groups and local normalization."""

import tensorflow as tf
import training
from keras import Input, Sequential, layers


def conv(filters, kernel):
    return layers.Conv2D(filters, kernel, padding="same", activation="relu")


def build(options):
    training.set_precision(options)
    model = Sequential([
        Input((224, 224, 3)), layers.ZeroPadding2D(2),
        layers.Conv2D(96, 11, 4, activation="relu"), layers.MaxPooling2D(3, 2),
        conv(256, 5), layers.MaxPooling2D(3, 2),
        conv(384, 3), conv(384, 3), conv(256, 3), layers.MaxPooling2D(3, 2),
        layers.Flatten(), layers.Dropout(0.5), layers.Dense(4096, activation="relu"),
        layers.Dropout(0.5), layers.Dense(4096, activation="relu"), layers.Dense(1000)])
    return (model, tf.random.normal((options.batch, 224, 224, 3)),
            tf.range(options.batch) % 1000, 0.01)
