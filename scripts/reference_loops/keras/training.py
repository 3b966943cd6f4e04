"""Trains a Keras 3 model on TensorFlow: `stock` is `compile` and `fit` with their defaults.

`compiled` is the guide's own training loop in a `tf.function` with `jit_compile=True`, and
`uncompiled` the same without it.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

TIERS = ("stock", "compiled", "uncompiled")


def set_precision(options):
    """Set the policy; call it before building a model."""
    tf.config.experimental.enable_tensor_float_32_execution(options.precision == "tf32")
    if options.precision == "bf16":
        keras.config.set_dtype_policy("mixed_bfloat16")


def prepare(model, inputs, targets, learning_rate, options):
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    run = fit if options.tier == "stock" else own_loop
    return run(model, optimizer, loss_function, inputs, targets, options)


def fit(model, optimizer, loss_function, inputs, targets, options):
    model.compile(optimizer, loss_function)
    batches = tf.data.Dataset.from_tensors((inputs, targets)).repeat()
    if options.device == "cuda":
        batches = batches.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))

    def run(steps):
        model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0)

    return run


def own_loop(model, optimizer, loss_function, inputs, targets, options):
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True if options.tier == "compiled" else None)
    def train_step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = loss_function(targets, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def run(steps):
        for _ in range(steps):
            loss = train_step(inputs, targets)
        loss.numpy()
        model.trainable_variables[0].numpy()

    return run
