"""The operations of Transformers in NumPy, as `operations` has the others.

Apart from those, so that the kept limits of other networks do not depend on this file. Tokens are
(B, T, F). Python 3.6 syntax, NumPy only.
"""

import math

import numpy as np

from runners.reference.operations import exact

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def layer_norm(a, w, x):
    normal = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.square(normal).mean(axis=-1, keepdims=True) + a["epsilon"])
    normal /= deviation
    return normal * w["scale"] + w["shift"], (normal, deviation)


def layer_norm_backward(a, w, saved, dy):
    normal, deviation = saved
    rows = tuple(range(dy.ndim - 1))
    gradients = {"scale": (dy * normal).sum(axis=rows), "shift": dy.sum(axis=rows)}
    dnormal = dy * w["scale"]
    # The mean and the deviation depend on x, too.
    dx = dnormal - dnormal.mean(axis=-1, keepdims=True)
    dx -= normal * (dnormal * normal).mean(axis=-1, keepdims=True)
    return [dx / deviation], gradients


def gelu(a, w, x):
    if a["tanh"]:
        return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + CUBIC * x ** 3))), x
    return 0.5 * x * (1 + erf(x / math.sqrt(2))), x


def gelu_backward(a, w, x, dy):
    if a["tanh"]:
        curve = np.tanh(SQRT_2_OVER_PI * (x + CUBIC * x ** 3))
        inner = SQRT_2_OVER_PI * (1 + 3 * CUBIC * x ** 2)
        return [dy * 0.5 * (1 + curve + x * (1 - curve ** 2) * inner)], {}
    density = np.exp(-0.5 * x ** 2) / math.sqrt(2 * math.pi)
    return [dy * (0.5 * (1 + erf(x / math.sqrt(2))) + x * density)], {}


def attention(a, w, x):
    """Sample by sample, because the scores of a whole batch would take gigabytes."""
    if x.shape[-1] % (3 * a["heads"]):
        raise ValueError("{} features for {} heads".format(x.shape[-1], a["heads"]))
    y = np.empty(x.shape[:2] + (x.shape[2] // 3,))
    for sample, out in zip(x, y):
        q, k, v = heads_of(a, sample)
        out[...] = joined(probabilities(a, q, k) @ v)
    return y, x


def attention_backward(a, w, x, dy):
    rounded = a.get("rounded", exact)
    dx = np.empty(x.shape)
    for sample, dout, out in zip(x, dy, dx):
        q, k, v = heads_of(a, sample)
        scale = 1 / math.sqrt(q.shape[-1])
        p = probabilities(a, q, k)  # (H, T, T)
        do = dout.reshape(len(dout), a["heads"], -1).swapaxes(0, 1)  # (H, T, D)
        dp = rounded(do @ v.swapaxes(1, 2))
        ds = rounded(p * (dp - (dp * p).sum(axis=-1, keepdims=True))) * scale
        parts = ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ do
        out[...] = np.concatenate([joined(part) for part in parts], axis=1)
    return [dx], {}


def probabilities(a, q, k):
    """Softmax over the tokens that each token reads: (H, T, T)."""
    rounded = a.get("rounded", exact)
    scores = rounded(q @ k.swapaxes(1, 2)) / math.sqrt(q.shape[-1])
    if a["causal"]:
        scores[:, ~np.tri(q.shape[1], dtype=bool)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return rounded(scores)


def positions(a, w, x):
    if w["weight"].shape != x.shape[1:]:
        raise ValueError("adds {} to {}".format(w["weight"].shape, x.shape[1:]))
    return x + w["weight"], None


def positions_backward(a, w, saved, dy):
    return [dy], {"weight": dy.sum(axis=0)}


def tokens(a, w, x):
    return x.reshape(x.shape[:2] + (-1,)).swapaxes(1, 2), x.shape  # (B, C, H, W) -> (B, H W, C)


def tokens_backward(a, w, shape, dy):
    return [dy.swapaxes(1, 2).reshape(shape)], {}


def class_token(a, w, x):
    first = np.broadcast_to(w["weight"], (len(x), 1, x.shape[2]))
    return np.concatenate([first, x], axis=1), None


def class_token_backward(a, w, saved, dy):
    return [dy[:, 1:]], {"weight": dy[:, 0].sum(axis=0)}


def first_token(a, w, x):
    return x[:, 0], x.shape


def first_token_backward(a, w, shape, dy):
    dx = np.zeros(shape)
    dx[:, 0] = dy
    return [dx], {}


def tied_dense(a, w, x):
    return x @ w["weight"].T, x


def tied_dense_backward(a, w, x, dy):
    rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return [dy @ w["weight"]], {"weight": drows.T @ rows}


OPERATIONS = {
    "layer_norm": (layer_norm, layer_norm_backward),
    "gelu": (gelu, gelu_backward),
    "attention": (attention, attention_backward),
    "positions": (positions, positions_backward),
    "tokens": (tokens, tokens_backward),
    "class_token": (class_token, class_token_backward),
    "first_token": (first_token, first_token_backward),
    "tied_dense": (tied_dense, tied_dense_backward),
}

PARAMETERS = {
    "layer_norm": lambda a, x: {"scale": x[-1:], "shift": x[-1:]},
    "positions": lambda a, x: {"weight": x},
    "class_token": lambda a, x: {"weight": x[-1:]},
}


def heads_of(a, sample):
    """Split a sample (T, 3 H D) into queries, keys and values of each head: (H, T, D) each."""
    return sample.reshape(len(sample), 3, a["heads"], -1).transpose(1, 2, 0, 3)


def joined(x):
    """Lay heads beside one another: (H, T, D) -> (T, H D)."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def erf(x):
    """The error function, by the standard library: NumPy has none."""
    return np.array(list(map(math.erf, x.ravel().tolist()))).reshape(x.shape)
