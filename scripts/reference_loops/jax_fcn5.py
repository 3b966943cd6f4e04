"""FCN-5 of DLBench in flax: 784-2048-4096-1024-10 with sigmoids."""

import windows

options = windows.arguments(("stock", "tuned"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_training  # noqa: E402
from flax import linen as nn  # noqa: E402

dtype = jax_training.dtype_of(options)
layers = [layer for width in (2048, 4096, 1024)
          for layer in (nn.Dense(width, dtype=dtype), nn.sigmoid)]
features = jax.random.normal(jax.random.key(1), (options.batch, 784))
labels = jnp.arange(options.batch) % 10
jax_training.train(nn.Sequential([*layers, nn.Dense(10, dtype=dtype)]), features, labels, 0.05,
                   options)
