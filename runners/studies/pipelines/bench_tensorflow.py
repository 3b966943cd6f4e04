"""The pipelines study in TensorFlow: `tf.data` decodes JPEG, `tf.image` resizes.

TensorFlow has no decoder of video.
"""

import numpy as np
import tensorflow as tf

from runners.studies.pipelines import bench
from runners.studies.pipelines.flow import Loader
from runners.tensorflow.inference import TensorFlow


class TensorFlowImages(Loader):
    """Frames are tensors (B, H, W, 3); a batch is decoded by as many threads as `tf.data` likes.

    The transform is named, because the default is a fast one: its pixels are off by 1 on average.
    """

    METHOD = "INTEGER_ACCURATE"

    def __init__(self, source):
        super().__init__(source)
        files = tf.data.Dataset.from_tensor_slices(source.files)
        with tf.device("/CPU:0"):
            images = files.map(self.read, num_parallel_calls=tf.data.AUTOTUNE)
            self.images = images.batch(source.batch)
        self.scale = tf.function(lambda frames: tf.image.resize(
            frames, source.size, method="bilinear", antialias=True))
        self.scores = tf.function(lambda frames: (
            tf.cast(frames, tf.float32) / 255.0 - tf.constant(source.mean))
            / tf.constant(source.deviation))

    def read(self, file):
        return tf.io.decode_jpeg(tf.io.read_file(file), channels=3, dct_method=self.METHOD)

    def decode(self):
        return iter(self.images)

    def resize(self, frames):
        return self.scale(frames)

    def normalise(self, frames):
        return self.scores(frames)

    def pixels(self, frames):
        return frames.numpy()

    def floats(self, batch):
        return batch.numpy().transpose(0, 3, 1, 2)


class AsItComes(TensorFlowImages):
    METHOD = ""


class Bench(bench.PipelineBench):
    ENGINE = TensorFlow
    LOADERS = {"tensorflow": TensorFlowImages, "tensorflow_default": AsItComes}

    def place(self, array):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
