"""The operations of Llama in NumPy, as `transformers` has those of GPT-2 and ViT.

Apart from those, so that the kept limits of other networks do not depend on this file. Tokens are
(B, T, F). Python 3.6 syntax, NumPy only.
"""

import math

import numpy as np

from runners.reference.operations import exact, logistic
from runners.reference.transformers import (
    joined,
    probabilities,
    tied_dense,
    tied_dense_backward,
)


def rms_norm(a, w, x):
    root = np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + a["epsilon"])
    normal = x / root
    return normal * w["scale"], (normal, root)


def rms_norm_backward(a, w, saved, dy):
    normal, root = saved
    dnormal = dy * w["scale"]
    dx = dnormal - normal * (dnormal * normal).mean(axis=-1, keepdims=True)
    return [dx / root], {"scale": (dy * normal).sum(axis=tuple(range(dy.ndim - 1)))}


def rotary(a, w, x):
    return turned(a, x, 1), None


def rotary_backward(a, w, saved, dy):
    return [turned(a, dy, -1)], {}


def grouped_attention(a, w, q, k, v):
    """Sample by sample, as `transformers.attention`."""
    y = np.empty(q.shape)
    for out, sample in zip(y, zip(q, k, v)):
        queries, keys, values = heads_of(a, sample)
        out[...] = joined(probabilities(a, queries, keys) @ values)
    return y, (q, k, v)


def grouped_attention_backward(a, w, saved, dy):
    rounded = a.get("rounded", exact)
    gradients = [np.empty(each.shape) for each in saved]
    for number, dout in enumerate(dy):
        q, k, v = heads_of(a, [each[number] for each in saved])
        scale = 1 / math.sqrt(q.shape[-1])
        p = probabilities(a, q, k)  # (H, T, T)
        do = dout.reshape(len(dout), a["heads"], -1).swapaxes(0, 1)  # (H, T, D)
        dp = rounded(do @ v.swapaxes(1, 2))
        ds = rounded(p * (dp - (dp * p).sum(axis=-1, keepdims=True))) * scale
        parts = ds @ k, summed(a, ds.swapaxes(1, 2) @ q), summed(a, p.swapaxes(1, 2) @ do)
        for gradient, part in zip(gradients, parts):
            gradient[number] = joined(part)
    return gradients, {}


def swiglu(a, w, gate, value):
    return gate * logistic(gate) * value, (gate, value)


def swiglu_backward(a, w, saved, dy):
    gate, value = saved
    share = logistic(gate)
    return [dy * value * share * (1 + gate * (1 - share)), dy * gate * share], {}


OPERATIONS = {
    "linear": (tied_dense, tied_dense_backward),
    "rms_norm": (rms_norm, rms_norm_backward),
    "rotary": (rotary, rotary_backward),
    "grouped_attention": (grouped_attention, grouped_attention_backward),
    "swiglu": (swiglu, swiglu_backward),
}

PARAMETERS = {
    "linear": lambda a, x: {"weight": (a["units"], x[-1])},
    "rms_norm": lambda a, x: {"scale": x[-1:]},
}


def turned(a, x, sign):
    """Turn features i and i + D/2 of each head by sign t base^(-2 i / D): (B, T, H D)."""
    B, T, F = x.shape
    left, right = x.reshape(B, T, a["heads"], 2, -1).transpose(3, 0, 1, 2, 4)  # (B, T, H, D/2)
    half = left.shape[-1]
    angles = np.arange(T)[:, None] * a["base"] ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], sign * np.sin(angles)[:, None]  # (T, 1, D/2)
    pairs = np.stack([left * cos - right * sin, right * cos + left * sin], axis=3)
    return pairs.reshape(B, T, F)


def heads_of(a, sample):
    """Split queries, keys and values of a sample into (H, T, D) each; some heads stand repeated."""
    count = a["heads"], a["groups"], a["groups"]
    parts = [each.reshape(len(each), heads, -1).swapaxes(0, 1)
             for each, heads in zip(sample, count)]
    return [np.repeat(part, a["heads"] // len(part), axis=0) for part in parts]


def summed(a, gradient):
    """Add up what the heads of queries send to the head that they share: (H, T, D) -> (G, T, D)."""
    return gradient.reshape((a["groups"], -1) + gradient.shape[1:]).sum(axis=1)
