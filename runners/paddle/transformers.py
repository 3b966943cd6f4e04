"""The layers of Transformers in Paddle, as `layers` has the others. Tokens are (B, T, F)."""

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Attention(nn.Layer):
    """Paddle's own; heads of keys and values may be fewer."""

    def __init__(self, a):
        super().__init__()
        self.heads, self.groups = a["heads"], a.get("groups", a["heads"])
        self.causal = a["causal"]

    def forward(self, *parts):
        # (B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B, T, H or G, D) each
        q, k, v = parts if len(parts) == 3 else paddle.chunk(parts[0], 3, axis=-1)
        q = q.reshape([0, 0, self.heads, -1])
        # No `zip`: that of `to_static` knows no `strict`.
        k, v = (part.reshape([0, 0, self.groups, -1]) for part in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).flatten(2)


class RMSNorm(nn.Layer):
    def __init__(self, a, width):
        super().__init__()
        self.epsilon = a["epsilon"]
        self.weight = self.create_parameter([width])

    def forward(self, x):
        # On a CPU Paddle 3.3.1 says "The kernel `rms_norm` is not registered".
        x32 = x.astype("float32")
        root = paddle.rsqrt((x32 * x32).mean(-1, keepdim=True) + self.epsilon)
        return (x32 * root * self.weight).astype(x.dtype)


class Rotary(nn.Layer):
    def __init__(self, a, shape):
        super().__init__()
        self.heads = a["heads"]
        half = shape[1] // (2 * self.heads)
        angles = np.outer(np.arange(shape[0]), a["base"] ** (-np.arange(half) / half))
        # (T, 1, D/2)
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            table = paddle.to_tensor(values.astype(np.float32)[:, None])
            self.register_buffer(name, table, persistable=False)

    def forward(self, x):
        left, right = paddle.chunk(x.reshape([0, 0, self.heads, -1]).astype("float32"), 2, axis=-1)
        turned = paddle.concat([left * self.cos - right * self.sin,
                                right * self.cos + left * self.sin], axis=-1)
        return turned.flatten(2).astype(x.dtype)


class SwiGLU(nn.Layer):
    def forward(self, gate, value):
        return F.silu(gate) * value


class Positions(nn.Layer):
    def __init__(self, shape):
        super().__init__()
        self.weight = self.create_parameter(list(shape))

    def forward(self, x):
        return x + self.weight


class ClassToken(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.weight = self.create_parameter([width])

    def forward(self, x):
        first = self.weight.astype(x.dtype).expand([x.shape[0], 1, x.shape[2]])
        return paddle.concat([first, x], axis=1)  # (B, T, F) -> (B, 1 + T, F)


class Tokens(nn.Layer):
    def forward(self, x):
        return x.flatten(2).transpose([0, 2, 1])  # (B, C, H, W) -> (B, H W, C)


class FirstToken(nn.Layer):
    def forward(self, x):
        return x[:, 0]


class TiedDense(nn.Layer):
    """`layers.Net` gives it the table of an embedding as its `weight`."""

    def forward(self, x):
        return paddle.matmul(x, self.weight, transpose_y=True)


# As `layers.LAYERS`.
LAYERS = {
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], epsilon=a["epsilon"]),
    "gelu": lambda a, shape: nn.GELU(approximate=a["tanh"]),
    "attention": lambda a, shape: Attention(a),
    "positions": lambda a, shape: Positions(shape),
    "tokens": lambda a, shape: Tokens(),
    "class_token": lambda a, shape: ClassToken(shape[-1]),
    "first_token": lambda a, shape: FirstToken(),
    "tied_dense": lambda a, shape: TiedDense(),
    "linear": lambda a, shape: nn.Linear(shape[-1], a["units"], bias_attr=False),
    "rms_norm": lambda a, shape: RMSNorm(a, shape[-1]),
    "rotary": Rotary,
    "grouped_attention": lambda a, shape: Attention(a),
    "swiglu": lambda a, shape: SwiGLU(),
}
