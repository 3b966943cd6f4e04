"""The layers of Transformers in PyTorch, as `layers` has the others. Tokens are (B, T, F)."""

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


class GroupedAttention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads = a["heads"], a["groups"], a["groups"]

    def forward(self, *parts):
        # (B, T, H D), (B, T, G D), (B, T, G D) -> (B, H or G, T, D) each
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for part, heads in zip(parts, self.heads, strict=True))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)


class Rotary(nn.Module):
    """Turns pairs in float32, as Llama's code does."""

    def __init__(self, a, shape):
        super().__init__()
        self.heads = a["heads"]
        half = shape[1] // (2 * self.heads)
        exponents = torch.arange(half, dtype=torch.float64) / -half
        angles = torch.outer(torch.arange(shape[0]).double(), a["base"] ** exponents)
        # (T, 1, D/2)
        self.register_buffer("cos", angles.cos().float()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin().float()[:, None], persistent=False)

    def forward(self, x):
        left, right = x.unflatten(-1, (self.heads, -1)).float().chunk(2, dim=-1)
        turned = torch.cat([left * self.cos - right * self.sin,
                            right * self.cos + left * self.sin], dim=-1)
        return turned.flatten(2).to(x.dtype)


class SwiGLU(nn.Module):
    def forward(self, gate, value):
        return F.silu(gate) * value


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


# As `layers.LAYERS`. `layers.Net` gives the tied head its table.
LAYERS = {
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], eps=a["epsilon"]),
    "gelu": lambda a, shape: nn.GELU(approximate="tanh" if a["tanh"] else "none"),
    "attention": lambda a, shape: Attention(a["heads"], a["causal"]),
    "positions": lambda a, shape: Positions(shape),
    "tokens": lambda a, shape: Tokens(),
    "class_token": lambda a, shape: ClassToken(shape[-1]),
    "first_token": lambda a, shape: FirstToken(),
    "tied_dense": lambda a, shape: nn.Linear(shape[-1], a["units"], bias=False),
    "linear": lambda a, shape: nn.Linear(shape[-1], a["units"], bias=False),
    "rms_norm": lambda a, shape: nn.RMSNorm(shape[-1], eps=a["epsilon"]),
    "rotary": Rotary,
    "grouped_attention": lambda a, shape: GroupedAttention(a),
    "swiglu": lambda a, shape: SwiGLU(),
}
