"""The layers of Transformers in MXNet 1.9.1, as `layers` has the others. Tokens are (B, T, F).

Python 3.6 syntax.
"""

import math

import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

# Subtracted from the scores of tokens that a token may not read.
FAR = 1e30


class Attention(gluon.HybridBlock):
    """Batched products and a softmax, as GluonNLP writes attention.

    MXNet's products share no heads, so heads of keys and values that are fewer are repeated.
    """

    def __init__(self, a, length, width, prefix):
        super().__init__(prefix=prefix)
        self.heads, self.width = a["heads"], width
        self.groups = a.get("groups", self.heads)
        if a["causal"]:
            later = np.triu(np.full((1, length, length), -FAR, np.float32), 1)
            self.mask = self.params.get_constant("mask", later)

    def hybrid_forward(self, F, *parts, mask=None):
        # (B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B H, T, D) each
        parts = parts if len(parts) == 3 else F.split(parts[0], num_outputs=3, axis=2)
        counts = self.heads, self.groups, self.groups
        q, k, v = (self.heads_of(F, part, count) for part, count in zip(parts, counts))
        scores = F.batch_dot(q / math.sqrt(self.width), k, transpose_b=True)  # (B H, T, T)
        if mask is not None:
            scores = F.broadcast_add(scores, mask)
        y = F.batch_dot(F.softmax(scores, axis=-1), v)
        y = y.reshape((-4, -1, self.heads, 0, 0)).transpose((0, 2, 1, 3))
        return y.reshape((0, 0, -3))

    def heads_of(self, F, x, count):
        x = x.reshape((0, 0, count, -1))
        if count < self.heads:
            x = F.repeat(x, self.heads // count, axis=2)
        return x.transpose((0, 2, 1, 3)).reshape((-3, 0, 0))  # (B, T, H, D) -> (B H, T, D)


class RMSNorm(gluon.HybridBlock):
    def __init__(self, a, width, prefix):
        super().__init__(prefix=prefix)
        self.epsilon = a["epsilon"]
        self.weight = self.params.get("weight", shape=(width,))

    def hybrid_forward(self, F, x, weight):
        root = F.rsqrt(F.mean(F.square(x), axis=-1, keepdims=True) + self.epsilon)
        return F.broadcast_mul(F.broadcast_mul(x, root), weight)


class Rotary(gluon.HybridBlock):
    def __init__(self, a, shape, prefix):
        super().__init__(prefix=prefix)
        self.heads = a["heads"]
        half = shape[1] // (2 * self.heads)
        angles = np.outer(np.arange(shape[0]), a["base"] ** (-np.arange(half) / half))
        # (1, T, 1, D/2)
        self.cos, self.sin = (
            self.params.get_constant(name, table.astype(np.float32)[None, :, None])
            for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))))

    def hybrid_forward(self, F, x, cos, sin):
        left, right = F.split(x.reshape((0, 0, self.heads, -1)), num_outputs=2, axis=3)
        times = F.broadcast_mul
        turned = F.concat(times(left, cos) - times(right, sin),
                          times(right, cos) + times(left, sin), dim=3)
        return turned.reshape((0, 0, -3))


class Positions(gluon.HybridBlock):
    def __init__(self, shape, prefix):
        super().__init__(prefix=prefix)
        self.weight = self.params.get("weight", shape=shape)

    def hybrid_forward(self, F, x, weight):
        return F.broadcast_add(x, F.expand_dims(weight, axis=0))


class ClassToken(gluon.HybridBlock):
    def __init__(self, width, prefix):
        super().__init__(prefix=prefix)
        self.weight = self.params.get("weight", shape=(width,))

    def hybrid_forward(self, F, x, weight):
        nothing = F.zeros_like(F.slice_axis(x, axis=1, begin=0, end=1))
        first = F.broadcast_add(nothing, weight.reshape((1, 1, -1)))
        return F.concat(first, x, dim=1)  # (B, T, F) -> (B, 1 + T, F)


def gelu_tanh(F, x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + F.tanh(inner))


def gelu(F, x):
    return F.LeakyReLU(x, act_type="gelu")


def tied_dense(a, input_shape, table):
    """A dense layer whose weight is the table of the embedding `table`."""
    return nn.Dense(a["units"], flatten=False, use_bias=False, in_units=input_shape[-1],
                    prefix=table.prefix, params=table.params)


# As `layers.LAYERS`; `layers.Net` makes the tied head.
LAYERS = {
    "layer_norm": lambda a, shape, prefix: nn.LayerNorm(
        epsilon=a["epsilon"], in_channels=shape[-1], prefix=prefix),
    "gelu": lambda a, shape, prefix: nn.HybridLambda(gelu_tanh if a["tanh"] else gelu),
    "attention": lambda a, shape, prefix: Attention(
        a, shape[0], shape[1] // (3 * a["heads"]), prefix),
    "positions": lambda a, shape, prefix: Positions(tuple(shape), prefix),
    "tokens": lambda a, shape, prefix: nn.HybridLambda(
        lambda F, x: x.reshape((0, 0, -1)).transpose((0, 2, 1))),
    "class_token": lambda a, shape, prefix: ClassToken(shape[-1], prefix),
    "first_token": lambda a, shape, prefix: nn.HybridLambda(
        lambda F, x: F.slice_axis(x, axis=1, begin=0, end=1).reshape((0, -1))),
    "linear": lambda a, shape, prefix: nn.Dense(
        a["units"], flatten=False, use_bias=False, in_units=shape[-1], prefix=prefix),
    "rms_norm": lambda a, shape, prefix: RMSNorm(a, shape[-1], prefix),
    "rotary": Rotary,
    "grouped_attention": lambda a, shape, prefix: Attention(
        a, shape[0], shape[1] // a["heads"], prefix),
    "swiglu": lambda a, shape, prefix: nn.HybridLambda(
        lambda F, gate, value: gate * F.sigmoid(gate) * value),
}
