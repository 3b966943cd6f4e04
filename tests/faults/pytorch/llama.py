"""PyTorch's runner with one fault of a Llama each."""

import torch
import torch.nn.functional as F
from torch import nn

from runners.pytorch.layers import make_layer
from runners.pytorch.transformers import GroupedAttention, Rotary
from tests.faults.pytorch import with_layer
from tests.faults.pytorch.transformers import with_attributes


def with_rotary(kind):
    return with_layer("rotary", lambda layer, shape: kind(layer["attributes"], shape))


def with_attention(kind):
    return with_layer("grouped_attention", lambda layer, shape: kind(layer["attributes"]))


class Late(Rotary):
    """Positions begin at one."""

    def __init__(self, a, shape):
        super().__init__(a, (shape[0] + 1, shape[1]))
        self.cos, self.sin = self.cos[1:], self.sin[1:]


class Interleaved(Rotary):
    """The pairs are neighbours, as in RoFormer and in Llama's own files of weights."""

    def forward(self, x):
        left, right = x.unflatten(-1, (self.heads, -1, 2)).unbind(-1)
        pairs = [left * self.cos - right * self.sin, right * self.cos + left * self.sin]
        return torch.stack(pairs, dim=-1).flatten(2)


class Unscaled(GroupedAttention):
    def forward(self, q, k, v):
        return super().forward(q * (q.shape[-1] / self.heads[0]) ** 0.5, k, v)


class OtherOrder(GroupedAttention):
    """Neighbouring heads read different heads of keys and values."""

    def forward(self, q, k, v):
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for part, heads in zip((q, k, v), self.heads, strict=True))
        times = self.heads[0] // self.heads[1]
        k, v = (part.repeat(1, times, 1, 1) for part in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class GeGLU(nn.Module):
    def forward(self, gate, value):
        return F.gelu(gate) * value


def keys_alone(layer, shape):
    few = layer["attributes"]["heads"] == 2
    return Late(layer["attributes"], shape) if few else make_layer(layer, shape)


LateKeys = with_layer("rotary", keys_alone)
LateBoth = with_rotary(Late)
Pairs = with_rotary(Interleaved)
Epsilon6 = with_attributes("rms_norm", epsilon=1e-6)
Epsilon3 = with_attributes("rms_norm", epsilon=1e-3)
NoScale = with_attention(Unscaled)
HeadOrder = with_attention(OtherOrder)
Gelu = with_layer("swiglu", lambda layer, shape: GeGLU())
Silu = with_layer("swiglu", make_layer)
