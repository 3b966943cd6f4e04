"""ViT-B/16 in flax, in the shape of Google's vision_transformer.

`tuned` takes cuDNN's attention, which has no float32.
"""

import jax
import jax.numpy as jnp
import training
from flax import linen as nn

WIDTH, DEPTH, HEADS = 768, 12, 12


class ViT(nn.Module):
    dtype: object
    cudnn: bool

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(WIDTH, (16, 16), (16, 16), "VALID", dtype=self.dtype)(images)
        x = x.reshape(len(x), -1, WIDTH)  # (B, H, W, C) -> (B, T, C)
        first = self.param("class", nn.initializers.zeros, (1, 1, WIDTH)).astype(self.dtype)
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), 1, WIDTH)), x], 1)
        places = self.param("places", nn.initializers.normal(0.02), (1, x.shape[1], WIDTH))
        x = x + places.astype(self.dtype)
        for _ in range(DEPTH):
            x = training.Block(WIDTH, HEADS, self.dtype, self.cudnn)(x)
        x = nn.LayerNorm(epsilon=1e-6, dtype=self.dtype)(x)
        return nn.Dense(1000, dtype=self.dtype)(x[:, 0])


def build(options):
    model = ViT(training.dtype_of(options), training.cudnn_attention(options))
    keys = jax.random.split(jax.random.key(1))
    images = jax.random.normal(keys[0], (options.batch, 224, 224, 3))
    return model, images, jax.random.randint(keys[1], (options.batch,), 0, 1000), 0.01
