"""The network as a graph of PyTensor's tensors. Parameters keep our canonical layouts.

PyTensor has no convolution over batches and channels and no pooling, so images are out of reach.
"""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy import float32
from pytensor.tensor.special import log_softmax, softmax

from runners.protocol import Unsupported, lowered

# From OpenAI's GPT-2: GELU's form with tanh.
CUBIC = 0.044715


def outputs_of(network, parameters, x):
    """Return each layer's output by name; `parameters` are shared variables by full name."""
    outputs = {"input": x}
    for layer in network["layers"]:
        own = {name: parameters[layer["name"] + "." + name] for name in layer["parameters"]}
        if "tied" in layer["attributes"]:
            own["weight"] = parameters[layer["attributes"]["tied"] + ".weight"]
        values = [outputs[source] for source in layer["inputs"]]
        outputs[layer["name"]] = lowered(LAYERS, layer)(layer["attributes"], own, *values)
    return outputs


def mean_loss(logits, targets):
    """Cross-entropy of logits (B, K) or (B, T, K)."""
    targets = targets.flatten()
    logs = log_softmax(logits.reshape((-1, logits.shape[-1])), axis=-1)
    return -logs[pt.arange(targets.shape[0]), targets].mean()


def linear(a, own, x):
    """(B, F) or (B, T, F); all words of a batch are one product."""
    *rows, width = x.type.shape
    y = pt.dot(x.reshape((-1, width)), own["weight"].T)
    y = y + own["bias"] if "bias" in own else y
    return y.reshape((*rows, own["weight"].type.shape[0]))


def lstm(a, own, x):
    """Products of the inputs first, then `pytensor.scan` over the words, as its tutorial has it."""
    words = linear(a, {"weight": own["weight_input"], "bias": own["bias"]}, x).swapaxes(0, 1)

    def step(gates, h, c, weight):
        whole = (gates + pt.dot(h, weight.T)).reshape((-1, 4, a["units"]))
        i, f, g, o = (whole[:, number] for number in range(4))
        c = pt.sigmoid(f) * c + pt.sigmoid(i) * pt.tanh(g)
        return pt.sigmoid(o) * pt.tanh(c), c

    batch, length, _ = x.type.shape
    zeros = pt.zeros((batch, a["units"]), dtype=x.dtype)
    hidden, _ = pytensor.scan(step, sequences=[words], outputs_info=[zeros, zeros],
                              non_sequences=[own["weight_hidden"]], return_updates=False)
    hidden = pt.specify_shape(hidden, (length, batch, a["units"]))
    return hidden.swapaxes(0, 1)  # (T, B, H) -> (B, T, H)


def layer_norm(a, own, x):
    apart = x - x.mean(axis=-1, keepdims=True)
    deviation = pt.sqrt(pt.square(apart).mean(axis=-1, keepdims=True) + float32(a["epsilon"]))
    return apart / deviation * own["scale"] + own["shift"]


def rms_norm(a, own, x):
    mean = pt.square(x).mean(axis=-1, keepdims=True)
    return x / pt.sqrt(mean + float32(a["epsilon"])) * own["scale"]


def gelu(a, own, x):
    if a["tanh"]:
        inner = float32(math.sqrt(2 / math.pi)) * (x + float32(CUBIC) * x * x * x)
        return float32(0.5) * x * (1 + pt.tanh(inner))
    return float32(0.5) * x * (1 + pt.erf(x * float32(math.sqrt(0.5))))


def attention(a, own, *parts):
    """(B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B, T, H D)."""
    heads, few = a["heads"], a.get("groups", a["heads"])
    if len(parts) == 1:
        width = parts[0].type.shape[-1] // 3
        parts = [parts[0][..., number * width:(number + 1) * width] for number in range(3)]
    batch, length, width = parts[0].type.shape
    size = width // heads
    q, k, v = (part.reshape((batch, length, count, size)).transpose(0, 2, 1, 3)  # (B, H, T, D)
               for part, count in zip(parts, (heads, few, few), strict=True))
    if few < heads:
        k, v = (pt.repeat(each, heads // few, axis=1) for each in (k, v))
    scores = pt.matmul(q, k.transpose(0, 1, 3, 2)) * float32(1 / math.sqrt(size))
    if a["causal"]:
        scores = pt.where(pt.tri(length, dtype="bool"), scores, float32(-np.inf))
    y = pt.matmul(softmax(scores, axis=-1), v)
    return y.transpose(0, 2, 1, 3).reshape((batch, length, width))


def rotary(a, own, x):
    length, width = x.type.shape[1:]
    half = width // (2 * a["heads"])
    angles = np.outer(np.arange(length), a["base"] ** (-np.arange(half) / half))[:, None]
    cos, sin = (pt.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    split = x.reshape((x.shape[0], length, a["heads"], 2 * half))
    left, right = split[..., :half], split[..., half:]
    turned = pt.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    return turned.reshape((x.shape[0], length, width))


def embedding(a, own, words):
    rows = own["weight"][words.flatten()]
    return rows.reshape((*words.type.shape, a["units"]))


def without(reason):
    def refuse(a, own, *values):
        raise Unsupported(reason)

    return refuse


IMAGES = "PyTensor 3 has no {}: its signal.convolve2d takes one image and one kernel"
# Operation -> function of attributes, parameters and inputs.
LAYERS = {
    "dense": linear, "linear": linear, "tied_dense": linear, "lstm": lstm,
    "relu": lambda a, own, x: pt.maximum(x, float32(0)),
    "sigmoid": lambda a, own, x: pt.sigmoid(x),
    "gelu": gelu, "swiglu": lambda a, own, gate, value: gate * pt.sigmoid(gate) * value,
    "add": lambda a, own, left, right: left + right,
    "flatten": lambda a, own, x: x.flatten(2),
    "embedding": embedding, "positions": lambda a, own, x: x + own["weight"],
    "layer_norm": layer_norm, "rms_norm": rms_norm,
    "attention": attention, "grouped_attention": attention, "rotary": rotary,
    "conv2d": without(IMAGES.format("convolution over batches and channels")),
    "lrn": without(IMAGES.format("local response normalisation and no convolution of batches")),
}
