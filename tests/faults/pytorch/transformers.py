"""PyTorch's runner with one fault of a Transformer each."""

import torch
import torch.nn.functional as F
from torch import nn

from runners.pytorch.layers import Net, make_layer
from runners.pytorch.runner import Runner
from runners.pytorch.transformers import Attention
from tests.faults.pytorch import planted, runner, with_layer


def with_attributes(op, **changed):
    def make(layer, input_shape):
        return make_layer({**layer, "attributes": {**layer["attributes"], **changed}}, input_shape)

    return with_layer(op, make)


def with_attention(kind):
    return with_layer("attention", lambda layer, shape: kind(layer["attributes"]["heads"],
                                                             layer["attributes"]["causal"]))


class Unscaled(Attention):
    def forward(self, x):
        q, k, v = x.chunk(3, dim=-1)
        root = (q.shape[-1] / self.heads) ** 0.5
        return super().forward(torch.cat([q * root, k, v], dim=-1))


class Ahead(Attention):
    """Each token reads the next one, too."""

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in x.chunk(3, dim=-1))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return y.transpose(1, 2).flatten(2)


class Dropped(Attention):
    """The last head's output is lost."""

    def forward(self, x):
        kept = torch.ones(self.heads, 1)
        kept[-1] = 0
        return (super().forward(x).unflatten(-1, (self.heads, -1)) * kept).flatten(2)


class Stale(Net):
    """The head reads the table as it was when the network was built."""

    def __init__(self, network, *options):
        super().__init__(network, *options)
        head = self.parts["tied_dense1"]
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)


class OneUse(nn.Linear):
    """A head that gives the table no gradient."""

    def forward(self, x):
        return F.linear(x, self.weight.detach())


class Apart(Net):
    """The head has a table of its own."""

    def __init__(self, network, *options):
        super().__init__(network, *options)
        head = self.parts["tied_dense1"]
        head.weight = nn.Parameter(torch.zeros_like(head.weight))


Tanh = with_attributes("gelu", tanh=True)
Exact = with_attributes("gelu", tanh=False)
Epsilon3 = with_attributes("layer_norm", epsilon=1e-3)
Epsilon5 = with_attributes("layer_norm", epsilon=1e-5)
Epsilon6 = with_attributes("layer_norm", epsilon=1e-6)
NoScale = with_attention(Unscaled)
NextWord = with_attention(Ahead)
DroppedHead = with_attention(Dropped)
Untied = planted(Runner, runner, Net=Apart)
StaleHead = planted(Runner, runner, Net=Stale)
HeadApart = with_layer("tied_dense", lambda layer, shape: OneUse(
    shape[-1], layer["attributes"]["units"], bias=False))
