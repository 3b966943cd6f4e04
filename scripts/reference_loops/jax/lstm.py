"""A word-level language model in flax: two LSTM layers of 256 over 10,000 words.

`tuned` unrolls the loop over words.
"""

import jax
import training
from flax import linen as nn


class LanguageModel(nn.Module):
    dtype: object
    unroll: int

    @nn.compact
    def __call__(self, words):
        x = nn.Embed(10000, 256, dtype=self.dtype)(words)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(256, dtype=self.dtype), unroll=self.unroll)(x)
        return nn.Dense(10000, dtype=self.dtype)(x)  # (B, T) -> (B, T, K)


def build(options):
    model = LanguageModel(training.dtype_of(options), 8 if options.tier == "tuned" else 1)
    shape = (2, options.batch, options.words)
    words, targets = jax.random.randint(jax.random.key(1), shape, 0, 10000)
    return model, words, targets, 0.1
