"""AlexNet of the original paper in flax, N H W C: without groups and local normalization."""

from functools import partial

import jax
import jax.numpy as jnp
import training
from flax import linen as nn


class AlexNet(nn.Module):
    dtype: object
    trained: bool

    @nn.compact
    def __call__(self, x):
        conv, dense = partial(nn.Conv, dtype=self.dtype), partial(nn.Dense, dtype=self.dtype)
        pool = partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2))
        dropout = partial(nn.Dropout, 0.5, deterministic=self.trained)
        x = pool(nn.relu(conv(96, (11, 11), 4, padding=2)(x)))
        x = pool(nn.relu(conv(256, (5, 5), padding=2)(x)))
        for filters in (384, 384, 256):
            x = nn.relu(conv(filters, (3, 3), padding=1)(x))
        x = dropout()(pool(x).reshape(len(x), -1))
        x = dropout()(nn.relu(dense(4096)(x)))
        x = nn.relu(dense(4096)(x))
        return dense(1000)(x)


def build(options):
    dtype = training.dtype_of(options)
    images = jax.random.normal(jax.random.key(1), (options.batch, 224, 224, 3), dtype)
    model = AlexNet(dtype, trained=options.mode == "inference")
    return model, images, jnp.arange(options.batch) % 1000, 0.01
