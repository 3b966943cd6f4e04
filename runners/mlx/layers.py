"""The network as an MLX module: `mlx.nn`'s layers by name, images N H W C."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from runners.protocol import Unsupported, lowered


class Net(nn.Module):
    """The network's layers as attributes of their names, run in their order."""

    def __init__(self, network):
        super().__init__()
        # Not lists, which MLX would search for parameters.
        self.wiring = lambda: network["layers"]
        shapes = {"input": network["input_shape"]}
        for layer in network["layers"]:
            setattr(self, layer["name"], lowered(LAYERS, layer)(layer["attributes"],
                                                                shapes[layer["inputs"][0]]))
            shapes[layer["name"]] = layer["output_shape"]

    def __call__(self, x):
        return self.outputs(x)[self.wiring()[-1]["name"]]

    def outputs(self, x):
        outputs = {"input": x}
        for layer in self.wiring():
            tied = layer["attributes"].get("tied")
            part = getattr(self, tied).as_linear if tied else getattr(self, layer["name"])
            outputs[layer["name"]] = part(*(outputs[source] for source in layer["inputs"]))
        return outputs


class LSTM(nn.LSTM):
    def __call__(self, x):
        return super().__call__(x)[0]  # (B, T, F) -> (B, T, H)


class Rotary(nn.Module):
    """MLX's own, whose pairs are i and i + D/2 unless it is told "traditional"."""

    def __init__(self, a, shape):
        super().__init__()
        self.heads = a["heads"]
        self.rope = nn.RoPE(shape[-1] // a["heads"], base=a["base"])

    def __call__(self, x):
        return joined(self.rope(split_heads(x, self.heads)))


class Table(nn.Module):
    """A trained tensor and what is done with it: positions, or the class token."""

    def __init__(self, shape, apply):
        super().__init__()
        self.weight = mx.zeros(shape)
        self.apply_table = apply

    def __call__(self, x):
        return self.apply_table(x, self.weight)


def before(x, weight):
    first = mx.broadcast_to(weight, (x.shape[0], 1, x.shape[2]))
    return mx.concatenate([first, x], 1)  # (B, T, F) -> (B, 1 + T, F)


def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)  # (B, T, H D) -> (B, H, T, D)


def joined(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attention(a, shape):
    """MLX's own; heads of keys and values may be fewer."""
    few = a.get("groups", a["heads"])

    def attend(*parts):
        # (B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B, T, H D)
        parts = parts if len(parts) == 3 else mx.split(parts[0], 3, -1)
        q, k, v = (split_heads(part, heads)
                   for part, heads in zip(parts, (a["heads"], few, few), strict=True))
        return joined(mx.fast.scaled_dot_product_attention(
            q, k, v, scale=q.shape[-1] ** -0.5, mask="causal" if a["causal"] else None))

    return attend


def max_pool(a, shape):
    kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
    # Room for a last window that begins in the image.
    room = [(kernel - size - 2 * padding) % stride if a["ceil"] else 0 for size in shape[1:]]
    sides = [(0, 0), *((padding, padding + more) for more in room), (0, 0)]
    pool = nn.MaxPool2d(kernel, stride)
    return lambda x: pool(mx.pad(x, sides, constant_values=-np.inf) if any(map(any, sides)) else x)


def conv(a, shape):
    return nn.Conv2d(shape[0], a["filters"], a["kernel"], a["stride"], a["padding"],
                     groups=a["groups"], bias=a["bias"])


def lrn(a, shape):
    raise Unsupported("lrn: MLX has no local response normalisation")


# Operation -> module or function, from the attributes and the input's shape without the batch.
LAYERS = {
    "dense": lambda a, shape: nn.Linear(shape[-1], a["units"]),
    "linear": lambda a, shape: nn.Linear(shape[-1], a["units"], bias=False),
    "conv2d": conv,
    "max_pool": max_pool,
    "avg_pool": lambda a, shape: nn.AvgPool2d(a["kernel"], a["stride"]),
    "global_avg_pool": lambda a, shape: lambda x: x.mean((1, 2)),
    "relu": lambda a, shape: nn.relu,
    "sigmoid": lambda a, shape: mx.sigmoid,
    "dropout": lambda a, shape: nn.Dropout(a["rate"]),
    "batch_norm": lambda a, shape: nn.BatchNorm(shape[0], a["epsilon"], 1 - a["running"]),
    "lrn": lrn,
    "concat": lambda a, shape: lambda *images: mx.concatenate(images, 3),
    "add": lambda a, shape: mx.add,
    # The network's features are in the order C H W.
    "flatten": lambda a, shape: lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), -1),
    "subsample": lambda a, shape: lambda x: x[:, ::a["stride"], ::a["stride"], :],
    "pad_channels": lambda a, shape: (
        lambda x: mx.pad(x, [(0, 0), (0, 0), (0, 0), (0, a["extra"])])),
    "embedding": lambda a, shape: nn.Embedding(a["vocabulary"], a["units"]),
    "lstm": lambda a, shape: LSTM(shape[-1], a["units"]),
    "layer_norm": lambda a, shape: nn.LayerNorm(shape[-1], a["epsilon"]),
    "rms_norm": lambda a, shape: nn.RMSNorm(shape[-1], a["epsilon"]),
    "gelu": lambda a, shape: nn.gelu_approx if a["tanh"] else nn.gelu,
    "attention": attention,
    "grouped_attention": attention,
    "rotary": Rotary,
    "swiglu": lambda a, shape: lambda gate, value: nn.silu(gate) * value,
    "positions": lambda a, shape: Table(tuple(shape), mx.add),
    "tokens": lambda a, shape: lambda x: x.reshape(len(x), -1, x.shape[-1]),
    "class_token": lambda a, shape: Table((shape[-1],), before),
    "first_token": lambda a, shape: lambda x: x[:, 0],
    # The embedding's own `as_linear`.
    "tied_dense": lambda a, shape: None,
}
