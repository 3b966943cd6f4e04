"""The layers of Transformers in PyTorch, as `runner` has the others. Tokens are (B, T, F)."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """PyTorch chooses the kernel of scaled_dot_product_attention, flash attention where it can."""

    def __init__(self, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x):
        # (B, T, 3 H D) -> three of (B, H, T, D)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in x.chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return y.transpose(1, 2).flatten(2)


class Positions(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return x + self.weight


class ClassToken(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        first = self.weight.expand(len(x), 1, -1)
        return torch.cat([first.to(x.dtype), x], dim=1)  # (B, T, F) -> (B, 1 + T, F)


class Tokens(nn.Module):
    def forward(self, x):
        return x.flatten(2).transpose(1, 2)  # (B, C, H, W) -> (B, H W, C)


class FirstToken(nn.Module):
    def forward(self, x):
        return x[:, 0]


# As `runner.LAYERS`. `runner.Net` gives the tied head its table.
LAYERS = {
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], eps=a["epsilon"]),
    "gelu": lambda a, shape: nn.GELU(approximate="tanh" if a["tanh"] else "none"),
    "attention": lambda a, shape: Attention(a["heads"], a["causal"]),
    "positions": lambda a, shape: Positions(shape),
    "tokens": lambda a, shape: Tokens(),
    "class_token": lambda a, shape: ClassToken(shape[-1]),
    "first_token": lambda a, shape: FirstToken(),
    "tied_dense": lambda a, shape: nn.Linear(shape[-1], a["units"], bias=False),
}
