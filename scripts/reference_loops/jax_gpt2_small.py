"""GPT-2 small in flax, as its language model example writes blocks.

`tuned` takes cuDNN's attention, which has no float32.
"""

import windows

options = windows.arguments(("stock", "tuned"))

import jax  # noqa: E402
import jax_training  # noqa: E402
from flax import linen as nn  # noqa: E402

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS = 50257, 1024, 768, 12, 12
dtype = jax_training.dtype_of(options)
cudnn = options.tier == "tuned" and options.device == "cuda" and options.precision == "bf16"


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(epsilon=1e-5, dtype=dtype)(x)
        y = nn.Dense(3 * WIDTH, dtype=dtype)(y).reshape(*x.shape[:2], 3, HEADS, -1)
        y = jax.nn.dot_product_attention(y[:, :, 0], y[:, :, 1], y[:, :, 2], is_causal=True,
                                         implementation="cudnn" if cudnn else None)
        x = x + nn.Dense(WIDTH, dtype=dtype)(y.reshape(x.shape))
        y = nn.LayerNorm(epsilon=1e-5, dtype=dtype)(x)
        return x + nn.Dense(WIDTH, dtype=dtype)(nn.gelu(nn.Dense(4 * WIDTH, dtype=dtype)(y)))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, words):
        table = nn.Embed(VOCABULARY, WIDTH, dtype=dtype)
        places = self.param("places", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        x = table(words) + places.astype(dtype)
        for _ in range(DEPTH):
            x = Block()(x)
        return table.attend(nn.LayerNorm(epsilon=1e-5, dtype=dtype)(x))  # (B, T) -> (B, T, K)


words, targets = jax.random.randint(jax.random.key(1), (2, options.batch, LENGTH), 0, VOCABULARY)
jax_training.train(GPT(), words, targets, 0.01, options)
