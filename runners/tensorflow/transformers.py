"""The layers of Transformers that Keras lacks, as `layers` has the others. Tokens are (B, T, F)."""

import keras
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


def lower(layer, x, options, tables):
    """Apply a layer of Transformers to a Keras tensor; None for another layer.

    `tables` are the Keras layers of embeddings, by name.
    """
    op, a = layer["op"], layer["attributes"]
    if op == "layer_norm":
        return keras.layers.LayerNormalization(epsilon=a["epsilon"], **options)(x)
    if op == "gelu":
        return ops.gelu(x, approximate=a["tanh"])
    if op == "attention":
        return Attention(a, **options)(x)
    if op == "positions":
        return Positions(**options)(x)
    if op == "tokens":
        return ops.reshape(x, (x.shape[0], -1, x.shape[-1]))  # (B, H, W, C) -> (B, H W, C)
    if op == "class_token":
        return ClassToken(**options)(x)
    if op == "first_token":
        return x[:, 0]
    if op == "tied_dense":
        return TiedDense(tables[a["tied"]], **options)(x)
    return None
