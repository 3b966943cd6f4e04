"""A word-level language model in flax: two LSTM layers of 256 over 10,000 words.

`tuned` unrolls the loop over words.
"""

import windows

options = windows.arguments(("stock", "tuned"), words=True)

import jax  # noqa: E402
import jax_training  # noqa: E402
from flax import linen as nn  # noqa: E402

dtype = jax_training.dtype_of(options)


class LanguageModel(nn.Module):
    @nn.compact
    def __call__(self, words):
        x = nn.Embed(10000, 256, dtype=dtype)(words)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(256, dtype=dtype),
                       unroll=8 if options.tier == "tuned" else 1)(x)
        return nn.Dense(10000, dtype=dtype)(x)  # (B, T) -> (B, T, K)


words, targets = jax.random.randint(jax.random.key(1), (2, options.batch, options.words), 0, 10000)
jax_training.train(LanguageModel(), words, targets, 0.1, options)
