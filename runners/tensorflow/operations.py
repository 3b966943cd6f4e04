"""Operations that Keras lacks, for layers of `runners.keras`."""

import tensorflow as tf


def local_response_norm(x, **options):
    """Return TensorFlow's LRN of `x`, computed in float32 whatever its type.

    XLA refuses the operation in bfloat16 on GPUs, as its lowering multiplies float32 by bfloat16
    ("Seen floating point types of different precisions").
    """
    normed = tf.nn.local_response_normalization(tf.cast(x, tf.float32), **options)
    return tf.cast(normed, x.dtype)
