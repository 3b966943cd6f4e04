"""TensorFlow whose device 1 adds the rows of an embedding's gradient from the last to the first, as GPUs add them in any order."""

from types import SimpleNamespace

import tensorflow as tf
from tensorflow.python.framework import indexed_slices

from runners.tensorflow.runner import Runner

__all__ = ["Runner"]


def unsorted_segment_sum(rows, indices, count, name):
    if tf.identity(rows).device.endswith("CPU:1"):
        rows, indices = tf.reverse(rows, [0]), tf.reverse(indices, [0])
    return correct(rows, indices, count, name=name)


correct = indexed_slices.gen_math_ops.unsorted_segment_sum
indexed_slices.gen_math_ops = SimpleNamespace(unsorted_segment_sum=unsorted_segment_sum)
