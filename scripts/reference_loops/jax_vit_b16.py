"""ViT-B/16 in flax, in the shape of Google's vision_transformer.

`tuned` takes cuDNN's attention, which has no float32.
"""

import windows

options = windows.arguments(("stock", "tuned"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_training  # noqa: E402
from flax import linen as nn  # noqa: E402

WIDTH, DEPTH, HEADS = 768, 12, 12
dtype = jax_training.dtype_of(options)
cudnn = options.tier == "tuned" and options.device == "cuda" and options.precision == "bf16"


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(epsilon=1e-6, dtype=dtype)(x)
        y = nn.Dense(3 * WIDTH, dtype=dtype)(y).reshape(*x.shape[:2], 3, HEADS, -1)
        y = jax.nn.dot_product_attention(y[:, :, 0], y[:, :, 1], y[:, :, 2],
                                         implementation="cudnn" if cudnn else None)
        x = x + nn.Dense(WIDTH, dtype=dtype)(y.reshape(x.shape))
        y = nn.Dense(4 * WIDTH, dtype=dtype)(nn.LayerNorm(epsilon=1e-6, dtype=dtype)(x))
        return x + nn.Dense(WIDTH, dtype=dtype)(nn.gelu(y, approximate=False))


class ViT(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.Conv(WIDTH, (16, 16), (16, 16), "VALID", dtype=dtype)(images)
        x = x.reshape(len(x), -1, WIDTH)  # (B, H, W, C) -> (B, T, C)
        first = self.param("class", nn.initializers.zeros, (1, 1, WIDTH)).astype(dtype)
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), 1, WIDTH)), x], 1)
        places = self.param("places", nn.initializers.normal(0.02), (1, x.shape[1], WIDTH))
        x = x + places.astype(dtype)
        for _ in range(DEPTH):
            x = Block()(x)
        return nn.Dense(1000, dtype=dtype)(nn.LayerNorm(epsilon=1e-6, dtype=dtype)(x)[:, 0])


keys = jax.random.split(jax.random.key(1))
images = jax.random.normal(keys[0], (options.batch, 224, 224, 3))
labels = jax.random.randint(keys[1], (options.batch,), 0, 1000)
jax_training.train(ViT(), images, labels, 0.01, options)
