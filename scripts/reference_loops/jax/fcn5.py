"""FCN-5 of DLBench in flax: 784-2048-4096-1024-10 with sigmoids."""

import jax
import jax.numpy as jnp
import training
from flax import linen as nn


def build(options):
    dtype = training.dtype_of(options)
    layers = [layer for width in (2048, 4096, 1024)
              for layer in (nn.Dense(width, dtype=dtype), nn.sigmoid)]
    features = jax.random.normal(jax.random.key(1), (options.batch, 784))
    return (nn.Sequential([*layers, nn.Dense(10, dtype=dtype)]), features,
            jnp.arange(options.batch) % 10, 0.05)
