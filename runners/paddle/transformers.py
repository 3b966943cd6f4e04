"""The layers of Transformers in Paddle, as `runner` has the others. Tokens are (B, T, F)."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Attention(nn.Layer):
    def __init__(self, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x):
        # (B, T, 3 H D) -> three of (B, T, H, D)
        q, k, v = (part.reshape([0, 0, self.heads, -1]) for part in paddle.chunk(x, 3, axis=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return y.flatten(2)


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
    """`runner.Net` gives it the table of an embedding as its `weight`."""

    def forward(self, x):
        return paddle.matmul(x, self.weight, transpose_y=True)


# As `runner.LAYERS`.
LAYERS = {
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], epsilon=a["epsilon"]),
    "gelu": lambda a, shape: nn.GELU(approximate=a["tanh"]),
    "attention": lambda a, shape: Attention(a["heads"], a["causal"]),
    "positions": lambda a, shape: Positions(shape),
    "tokens": lambda a, shape: Tokens(),
    "class_token": lambda a, shape: ClassToken(shape[-1]),
    "first_token": lambda a, shape: FirstToken(),
    "tied_dense": lambda a, shape: TiedDense(),
}
