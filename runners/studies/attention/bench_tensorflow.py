"""The attention study in Keras on TensorFlow: `keras.ops.dot_product_attention`, compiled by XLA.

Operands are (B, T, H, D). XLA is what Keras compiles a model with unless told otherwise.
"""

import os
from functools import partial

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

from runners.studies.attention import bench

KINDS = {"fp32": tf.float32, "tf32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


class Bench(bench.AttentionBench):
    LIBRARY = tf
    IMPLEMENTATIONS = ("keras",)

    def __init__(self, task):
        super().__init__(task)
        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(task.threads)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        self.device = "/GPU:0" if task.device == "cuda" else "/CPU:0"

    def candidates(self, point):
        tf.config.experimental.enable_tensor_float_32_execution(point["precision"] == "tf32")
        return super().candidates(point)

    def operand(self, array, precision):
        with tf.device(self.device):
            return tf.cast(tf.constant(array), KINDS[precision])

    def attention(self, name, operands, point):
        attend = partial(keras.ops.dot_product_attention, is_causal=point["causal"] == "yes")

        # Autograph has nothing to rewrite, and would wrap what Keras raises.
        @tf.function(autograph=False, jit_compile=True)
        def forward(*inputs):
            return (attend(*inputs),)

        @tf.function(autograph=False, jit_compile=True)
        def backward(*operands):
            inputs = operands[:3]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                output = attend(*inputs)
            return (output, *tape.gradient(output, inputs, operands[3]))

        if point["pass"] == "forward":
            return partial(forward, *operands[:3])
        return partial(backward, *operands)

    def wait(self, result):
        tf.test.experimental.sync_devices()

    def head(self, tensor, sample, head):
        return tf.cast(tensor[sample, :, head], tf.float32).numpy()

    def operators(self, compute):
        graph = compute.func.get_concrete_function(*compute.args).graph
        names = {operation.type for operation in graph.get_operations()}
        return sorted(filter(bench.TELLING.search, names))
