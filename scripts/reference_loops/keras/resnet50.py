"""ResNet-50 v1.5 as a functional Keras 3 model (keras.applications has v1, with biases)."""

import tensorflow as tf
import training
from keras import Input, Model, layers


def conv_norm(x, filters, kernel, strides=1):
    x = layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def bottleneck(x, filters, strides):
    y = layers.ReLU()(conv_norm(x, filters, 1))
    y = layers.ReLU()(conv_norm(y, filters, 3, strides))
    y = conv_norm(y, 4 * filters, 1)
    if x.shape != y.shape:
        x = conv_norm(x, 4 * filters, 1, strides)
    return layers.ReLU()(layers.Add()([x, y]))


def build(options):
    training.set_precision(options)
    images = Input((224, 224, 3))
    x = layers.ReLU()(conv_norm(images, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            x = bottleneck(x, 64 * 2**stage, 2 if stage > 0 and block == 0 else 1)
    logits = layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))
    return (Model(images, logits), tf.random.normal((options.batch, 224, 224, 3)),
            tf.range(options.batch) % 1000, 0.01)
