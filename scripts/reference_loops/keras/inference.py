"""Runs a trained Keras 3 model as a `tf.function` and awaits each call's outputs.

`stock` lets Keras decide whether XLA compiles, as `predict` does; `compiled` has
`jit_compile=True`, and `uncompiled` has not.
"""

import tensorflow as tf

TIERS = ("stock", "compiled", "uncompiled")


def prepare(model, inputs, targets, learning_rate, options):
    if options.precision == "fp16":
        raise SystemExit("--precision fp16: these models choose bf16 or float32")
    model.compile()
    compiles = {"stock": model.jit_compile, "compiled": True, "uncompiled": False}[options.tier]
    call = tf.function(lambda inputs: model(inputs, training=False), jit_compile=compiles or None)
    device = "/GPU:0" if options.device == "cuda" else "/CPU:0"

    def run(steps):
        with tf.device(device):
            for _ in range(steps):
                call(inputs)
                tf.raw_ops.SyncDevice()

    return run
