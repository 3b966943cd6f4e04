"""The layers of Transformers that Keras lacks, as `layers` has the others. Tokens are (B, T, F)."""

import keras
import numpy as np
from keras import ops


class Attention(keras.layers.Layer):
    def __init__(self, a, **options):
        super().__init__(**options)
        self.heads, self.causal = a["heads"], a["causal"]

    def call(self, x):
        batch, length, features = x.shape
        width = features // (3 * self.heads)
        # (B, T, 3 H D) -> three of (B, T, H, D)
        q, k, v = ops.unstack(ops.reshape(x, (batch, length, 3, self.heads, width)), axis=2)
        y = ops.dot_product_attention(q, k, v, is_causal=self.causal)
        return ops.reshape(y, (batch, length, features // 3))


class GroupedAttention(keras.layers.Layer):
    """Keras's own has as many heads of keys and values as of queries."""

    def __init__(self, a, **options):
        super().__init__(**options)
        self.heads, self.groups = a["heads"], a["groups"]

    def call(self, inputs):
        # (B, T, H D), (B, T, G D), (B, T, G D) -> (B, T, H, D) each
        counts = (self.heads, self.groups, self.groups)
        q, k, v = (ops.repeat(split_heads(x, heads), self.heads // heads, axis=2)
                   for x, heads in zip(inputs, counts, strict=True))
        y = ops.dot_product_attention(q, k, v, is_causal=True)
        return ops.reshape(y, inputs[0].shape)


class Rotary(keras.layers.Layer):
    """Turns the pairs of each head, in float32."""

    def __init__(self, a, **options):
        super().__init__(**options)
        self.heads, self.base = a["heads"], a["base"]

    def call(self, x):
        half = x.shape[2] // (2 * self.heads)
        angles = np.outer(np.arange(x.shape[1]), self.base ** (-np.arange(half) / half))
        # (T, 1, D/2)
        cos, sin = (ops.convert_to_tensor(f(angles)[:, None], "float32")
                    for f in (np.cos, np.sin))
        left, right = ops.split(ops.cast(split_heads(x, self.heads), "float32"), 2, axis=-1)
        turned = ops.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
        return ops.cast(ops.reshape(turned, x.shape), x.dtype)


def split_heads(x, heads):
    batch, length, features = x.shape
    return ops.reshape(x, (batch, length, heads, features // heads))


class Positions(keras.layers.Layer):
    def build(self, shape):
        self.embeddings = self.add_weight(name="embeddings", shape=shape[1:])

    def call(self, x):
        return x + self.embeddings


class ClassToken(keras.layers.Layer):
    def build(self, shape):
        self.embeddings = self.add_weight(name="embeddings", shape=shape[2:])

    def call(self, x):
        first = ops.broadcast_to(self.embeddings, (x.shape[0], 1, x.shape[2]))
        return ops.concatenate([first, x], axis=1)  # (B, T, F) -> (B, 1 + T, F)


class TiedDense(keras.layers.Layer):
    def __init__(self, table, **options):
        super().__init__(**options)
        self.table = table

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.table.embeddings))


# As `layers.LAYERS`.
LAYERS = {
    "layer_norm": lambda a, options, x: keras.layers.LayerNormalization(
        epsilon=a["epsilon"], **options)(x),
    "gelu": lambda a, options, x: ops.gelu(x, approximate=a["tanh"]),
    "attention": lambda a, options, x: Attention(a, **options)(x),
    "positions": lambda a, options, x: Positions(**options)(x),
    # (B, H, W, C) -> (B, H W, C)
    "tokens": lambda a, options, x: ops.reshape(x, (x.shape[0], -1, x.shape[-1])),
    "class_token": lambda a, options, x: ClassToken(**options)(x),
    "first_token": lambda a, options, x: x[:, 0],
    "tied_dense": lambda a, options, x: TiedDense(a["tables"][a["tied"]], **options)(x),
    "linear": lambda a, options, x: keras.layers.Dense(a["units"], use_bias=False, **options)(x),
    "rms_norm": lambda a, options, x: keras.layers.RMSNormalization(
        epsilon=a["epsilon"], **options)(x),
    "rotary": lambda a, options, x: Rotary(a, **options)(x),
    "grouped_attention": lambda a, options, *parts: GroupedAttention(a, **options)(list(parts)),
    "swiglu": lambda a, options, gate, value: ops.silu(gate) * value,
}
