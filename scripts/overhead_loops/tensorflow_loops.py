"""FCN-5, ResNet-50 and a two-layer LSTM, written by hand in Keras 3 without dlbench."""

import itertools

import loop

options = loop.arguments(["fcn5", "resnet50", "lstm32"])

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(options.threads)
tf.config.threading.set_inter_op_parallelism_threads(options.threads)
tf.config.experimental.enable_tensor_float_32_execution(False)


def fcn5():
    return keras.Sequential([
        keras.Input((784,)),
        layers.Dense(2048, activation="sigmoid"),
        layers.Dense(4096, activation="sigmoid"),
        layers.Dense(1024, activation="sigmoid"),
        layers.Dense(10),
    ])


def convolution(x, filters, kernel, stride=1):
    if stride != 1 and kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2)(x)
    padding = "same" if stride == 1 else "valid"
    x = layers.Conv2D(filters, kernel, stride, padding=padding, use_bias=False)(x)
    return layers.BatchNormalization(epsilon=1e-5)(x)


def bottleneck(x, width, stride):
    shortcut = x
    if stride != 1 or x.shape[-1] != 4 * width:
        shortcut = convolution(x, 4 * width, 1, stride)
    x = layers.ReLU()(convolution(x, width, 1))
    x = layers.ReLU()(convolution(x, width, 3, stride))
    x = convolution(x, 4 * width, 1)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def resnet50():
    inputs = keras.Input((224, 224, 3))
    x = layers.ReLU()(convolution(inputs, 64, 7, 2))
    # After a ReLU, padding with zeros equals padding with minus infinity.
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            x = bottleneck(x, 64 * 2**stage, stride=2 if stage > 0 and block == 0 else 1)
    return keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


def lstm32():
    return keras.Sequential([
        keras.Input((32,), dtype="int64"),
        layers.Embedding(10000, 256),
        layers.LSTM(256, return_sequences=True),
        layers.LSTM(256, return_sequences=True),
        layers.Dense(10000),
    ])


def random_batch(generator):
    if options.network == "fcn5":
        return (generator.standard_normal((options.batch, 784), np.float32),
                generator.integers(10, size=options.batch))
    if options.network == "resnet50":
        return (generator.standard_normal((options.batch, 224, 224, 3), np.float32),
                generator.integers(1000, size=options.batch))
    words = generator.integers(10000, size=(2, options.batch, 32))
    return words[0], words[1]


with tf.device("/GPU:0" if options.device == "cuda" else "/CPU:0"):
    model = {"fcn5": fcn5, "resnet50": resnet50, "lstm32": lstm32}[options.network]()
    learning_rate = {"fcn5": 0.05, "resnet50": 0.01, "lstm32": 0.1}[options.network]
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    generator = np.random.default_rng(1)
    batches = itertools.cycle([[tf.constant(array) for array in random_batch(generator)]
                               for _ in range(options.batches)])


@tf.function
def train(inputs, targets):
    with tf.GradientTape() as tape:
        loss = loss_function(targets, model(inputs, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


def train_step():
    inputs, targets = next(batches)
    train(inputs, targets)


parameters = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
loop.serve(train_step, tf.test.experimental.sync_devices, parameters)
