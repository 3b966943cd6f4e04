"""The network in tinygrad: `tinygrad.nn`'s layers and functions of tensors, images N C H W."""

import numpy as np
from tinygrad import Tensor, nn

from runners.protocol import Unsupported, lowered


class Net:
    """The network's layers by name, run in their order."""

    def __init__(self, network):
        self.parts, self.layers = {}, network["layers"]
        shapes = {"input": network["input_shape"]}
        for layer in self.layers:
            self.parts[layer["name"]] = lowered(LAYERS, layer)(layer["attributes"],
                                                               shapes[layer["inputs"][0]])
            shapes[layer["name"]] = layer["output_shape"]

    def outputs(self, x):
        outputs = {"input": x}
        for layer in self.layers:
            values = [outputs[source] for source in layer["inputs"]]
            if "tied" in layer["attributes"]:
                y = values[0].linear(self.parts[layer["attributes"]["tied"]].weight.T)
            else:
                y = self.parts[layer["name"]](*values)
            outputs[layer["name"]] = y
        return outputs


class LSTM(nn.LSTMCell):
    """tinygrad's cell, word by word. Its second bias vector stays zero and untrained."""

    def __call__(self, x):
        state, outputs = None, []
        for word in range(x.shape[1]):
            state = super().__call__(x[:, word], state)
            outputs.append(state[0])
        return Tensor.stack(*outputs, dim=1)  # (B, T, F) -> (B, T, H)


class Table:
    """A trained tensor and what is done with it: positions, or the class token."""

    def __init__(self, shape, apply):
        self.weight, self.apply = Tensor.zeros(*shape).contiguous(), apply

    def __call__(self, x):
        return self.apply(x, self.weight)


def before(x, weight):
    return weight.expand(x.shape[0], 1, x.shape[2]).cat(x, dim=1)  # (B, T, F) -> (B, 1 + T, F)


def attention(a, shape):
    """tinygrad's own; heads of keys and values may be fewer."""
    few = a.get("groups", a["heads"])

    def attend(*parts):
        # (B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B, H or G, T, D) each
        parts = parts if len(parts) == 3 else parts[0].chunk(3, dim=-1)
        q, k, v = (part.reshape(*part.shape[:2], heads, -1).transpose(1, 2)
                   for part, heads in zip(parts, (a["heads"], few, few), strict=True))
        y = q.scaled_dot_product_attention(k, v, is_causal=a["causal"],
                                           enable_gqa=few < a["heads"])
        return y.transpose(1, 2).flatten(2)

    return attend


def rotary(a, shape):
    half = shape[1] // (2 * a["heads"])
    angles = np.outer(np.arange(shape[0]), a["base"] ** (-np.arange(half) / half))
    cos, sin = (Tensor(f(angles).astype(np.float32)[:, None]) for f in (np.cos, np.sin))

    def turn(x):
        left, right = x.reshape(*x.shape[:2], a["heads"], -1).chunk(2, dim=-1)
        return (left * cos - right * sin).cat(right * cos + left * sin, dim=-1).flatten(2)

    return turn


def lrn(a, shape):
    raise Unsupported("lrn: tinygrad has no local response normalisation")


def gelu(a, shape):
    return lambda x: x.gelu("tanh" if a["tanh"] else "none")


# Operation -> module or function, from the attributes and the input's shape without the batch.
LAYERS = {
    "dense": lambda a, shape: nn.Linear(shape[-1], a["units"]),
    "linear": lambda a, shape: nn.Linear(shape[-1], a["units"], bias=False),
    "conv2d": lambda a, shape: nn.Conv2d(shape[0], a["filters"], a["kernel"], a["stride"],
                                         a["padding"], groups=a["groups"], bias=a["bias"]),
    "max_pool": lambda a, shape: lambda x: x.max_pool2d(
        (a["kernel"],) * 2, a["stride"], padding=a["padding"], ceil_mode=a["ceil"]),
    "avg_pool": lambda a, shape: lambda x: x.avg_pool2d((a["kernel"],) * 2, a["stride"]),
    "global_avg_pool": lambda a, shape: lambda x: x.mean((2, 3)),
    "relu": lambda a, shape: Tensor.relu,
    "sigmoid": lambda a, shape: Tensor.sigmoid,
    "dropout": lambda a, shape: lambda x: x.dropout(a["rate"]),
    "batch_norm": lambda a, shape: nn.BatchNorm2d(shape[0], a["epsilon"],
                                                  momentum=1 - a["running"]),
    "lrn": lrn,
    "concat": lambda a, shape: lambda first, *others: first.cat(*others, dim=1),
    "add": lambda a, shape: lambda left, right: left + right,
    "flatten": lambda a, shape: lambda x: x.flatten(1),
    "subsample": lambda a, shape: lambda x: x[:, :, ::a["stride"], ::a["stride"]],
    "pad_channels": lambda a, shape: lambda x: x.pad((None, (0, a["extra"]), None, None)),
    "embedding": lambda a, shape: nn.Embedding(a["vocabulary"], a["units"]),
    "lstm": lambda a, shape: LSTM(shape[-1], a["units"]),
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], a["epsilon"]),
    "rms_norm": lambda a, shape: nn.RMSNorm(shape[-1], a["epsilon"]),
    "gelu": gelu,
    "attention": attention,
    "grouped_attention": attention,
    "rotary": rotary,
    "swiglu": lambda a, shape: lambda gate, value: gate.silu() * value,
    "positions": lambda a, shape: Table(shape, lambda x, weight: x + weight),
    "tokens": lambda a, shape: lambda x: x.flatten(2).transpose(1, 2),
    "class_token": lambda a, shape: Table(shape[-1:], before),
    "first_token": lambda a, shape: lambda x: x[:, 0],
    # The embedding's table.
    "tied_dense": lambda a, shape: None,
}
