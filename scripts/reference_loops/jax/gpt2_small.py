"""GPT-2 small in flax, as its language model example writes blocks.

`tuned` takes cuDNN's attention, which has no float32.
"""

import jax
import training
from flax import linen as nn

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS = 50257, 1024, 768, 12, 12


class GPT(nn.Module):
    dtype: object
    cudnn: bool

    @nn.compact
    def __call__(self, words):
        table = nn.Embed(VOCABULARY, WIDTH, dtype=self.dtype)
        places = self.param("places", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        x = table(words) + places.astype(self.dtype)
        for _ in range(DEPTH):
            x = training.Block(WIDTH, HEADS, self.dtype, self.cudnn, 1e-5, causal=True,
                               approximate=True)(x)
        return table.attend(nn.LayerNorm(epsilon=1e-5, dtype=self.dtype)(x))  # (B, T) -> (B, T, K)


def build(options):
    model = GPT(training.dtype_of(options), training.cudnn_attention(options))
    shape = (2, options.batch, LENGTH)
    words, targets = jax.random.randint(jax.random.key(1), shape, 0, VOCABULARY)
    return model, words, targets, 0.01
