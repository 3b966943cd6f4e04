"""Image files by tf.data, as TensorFlow's guide to its performance has it.

`map` in parallel, `batch` and `prefetch`, all with AUTOTUNE. TensorFlow's own operations decode.
"""

import tensorflow as tf

AUTOTUNE = tf.data.AUTOTUNE
# Batches taken before the loader is timed: AUTOTUNE does not say how many lie ready.
AHEAD = 16


def load(described, batch):
    """Return the loader's settings in words, its endless batches, and how many may lie ready.

    Images are N H W C.
    """
    with tf.device("/CPU:0"):
        paths, labels = tf.constant(described["paths"]), tf.constant(described["labels"], tf.int64)
        mean, deviation = described["mean"], described["deviation"]
        order = tf.data.Dataset.from_tensor_slices(described["order"])
        jpeg = described["paths"][0].endswith(".jpg")

        def decode(content):
            if jpeg:
                # Pillow's decoder uses the same transform, so that pixels can be compared.
                return tf.io.decode_jpeg(content, len(mean), dct_method="INTEGER_ACCURATE")
            return tf.io.decode_png(content, len(mean))

        def read(number):
            image = tf.cast(decode(tf.io.read_file(paths[number])), tf.float32) / 255
            return (image - mean) / deviation, labels[number]

        dataset = order.repeat().map(read, AUTOTUNE).batch(batch, drop_remainder=True)
        return "tf.data: AUTOTUNE", dataset.prefetch(AUTOTUNE), AHEAD
