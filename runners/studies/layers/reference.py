"""The layers of the layers study in NumPy float64: their inputs, drawn by a seed, and their exact outputs and gradients.

Canonical layouts: x is (B, C, *space), weights (out, in, *kernel). A layer is what `draw` gives it and what `exact` returns for
that; gradients are those of sum(output * upstream). The formulas are those of the layers' own papers and of Caffe's LRN.
"""

import itertools

import numpy as np

EPSILON = 1e-5  # of batch norm
LRN_SIZE, LRN_ALPHA, LRN_BETA, LRN_K = 5, 0.1, 0.75, 1.0  # AlexNet's but for alpha: its 1e-4 would hide a wrong sum
KEEP_SIGMAS = 6  # how far the share of kept values may lie from the rate, in standard deviations
NORM_PARAMETERS = ("scale", "shift")  # stay in float32
DISTINCT = 1021  # a prime: neighbours within it differ, and its multiples of 1/512 are exact in fp16


def draw(point, batch, seed=0):
    """Inputs of a layer by name, rounded to the point's precision: float16 or float32, and int32 labels and words."""
    generator = np.random.default_rng(seed)
    arrays = INPUTS[point["layer"]](point, batch, generator)
    kind = np.float16 if point["precision"] == "fp16" else np.float32
    return {name: array if array.dtype == np.int32 else array.astype(np.float32 if name in NORM_PARAMETERS else kind)
            for name, array in arrays.items()}


def draw_upstream(point, shape, seed=1):
    """The gradient of the loss with respect to the output, in the point's precision."""
    upstream = noise(np.random.default_rng(seed), shape)
    return upstream.astype(np.float16 if point["precision"] == "fp16" else np.float32)


def exact(point, arrays, upstream, output=None):
    """(output, gradients by name) in float64; of dropout, whose units are the framework's choice, for the units of `output`."""
    inputs = {name: array if array.dtype == np.int32 else array.astype(np.float64) for name, array in arrays.items()}
    upstream = None if upstream is None else upstream.astype(np.float64)
    return EXACT[point["layer"]](point, inputs, upstream, output)


def output_shape(point, arrays):
    """The shape of the output, of the batch that `arrays` have."""
    x, layer = arrays["x"], point["layer"]
    if layer in ("conv1d", "conv3d"):
        return (len(x), len(arrays["weight"]), *x.shape[2:])
    if layer.endswith("_pool"):
        return (*x.shape[:2], *((size - point["kernel"]) // point["stride"] + 1 for size in x.shape[2:]))
    if layer == "embedding":
        return (*x.shape, arrays["table"].shape[1])
    return {"ctc": x.shape[1:2], "hierarchical_softmax": x.shape[:1]}.get(layer, x.shape)


def noise(generator, shape):
    """Normal random numbers of two samples, over and over: to draw a whole batch would take seconds."""
    return np.resize(generator.standard_normal((min(shape[0], 2), *shape[1:]), np.float32), shape)


def draw_conv(dimensions):
    def make(point, batch, generator):
        c, k = point["channels"], point["kernel"]
        x = noise(generator, (batch, c) + (point["size"],) * dimensions)
        return {"x": x, "weight": generator.standard_normal((c, c) + (k,) * dimensions) / (c * k**dimensions) ** 0.5}
    return make


def draw_pool(point, batch, generator):
    shape = (batch, point["channels"], point["size"], point["size"])
    values = (387 * np.arange(np.prod(shape[1:])) % DISTINCT) / 512 - 1  # no two alike in a window: no ties
    return {"x": np.resize(values.astype(np.float32), shape)}


def draw_norm(point, batch, generator):
    c = point["channels"]
    arrays = draw_image(point, batch, generator)
    return {**arrays, "scale": 1 + 0.1 * generator.standard_normal(c), "shift": 0.1 * generator.standard_normal(c)}


def draw_image(point, batch, generator):
    return {"x": noise(generator, (batch, point["channels"], point["size"], point["size"]))}


def draw_rows(point, batch, generator):
    return {"x": noise(generator, (batch, point["channels"]))}


def draw_words(point, batch, generator):
    words = generator.integers(point["classes"], size=(batch, point["size"])).astype(np.int32)
    return {"x": words, "table": generator.standard_normal((point["classes"], point["channels"]), np.float32)}


def draw_speech(point, batch, generator):
    logits = generator.standard_normal((point["size"], batch, point["classes"]))  # (T, B, K), class 0 is the blank
    return {"x": logits, "labels": generator.integers(1, point["classes"], size=(batch, point["labels"])).astype(np.int32)}


def draw_tree(point, batch, generator):
    features, side = point["channels"], int(point["classes"] ** 0.5)
    return {"x": generator.standard_normal((batch, features)),
            "clusters": generator.standard_normal((side, features)) / features**0.5,  # (G, F)
            "words": generator.standard_normal((side, side, features)) / features**0.5,  # (G, K / G, F)
            "labels": generator.integers(side * side, size=batch).astype(np.int32)}


def conv(point, inputs, upstream, output):
    """y[b, k, p] = sum over c, r of x[b, c, p + r] w[k, c, r], stride 1, padded so that the size stays."""
    x, w = inputs["x"], inputs["weight"]
    space = x.ndim - 2
    edge = point["kernel"] // 2
    padded = np.pad(x, [(0, 0), (0, 0)] + [(edge, edge)] * space, mode="constant")
    y, dw, dx = np.zeros((len(x), len(w)) + x.shape[2:]), np.zeros_like(w), np.zeros_like(padded)
    for offset in itertools.product(range(point["kernel"]), repeat=space):
        place = (slice(None), slice(None), *(slice(o, o + size) for o, size in zip(offset, x.shape[2:])))
        tap = (slice(None), slice(None), *offset)
        y += np.moveaxis(np.tensordot(padded[place], w[tap], ([1], [1])), -1, 1)
        dw[tap] = np.tensordot(upstream, padded[place], (_all_but_one(upstream), _all_but_one(x)))
        dx[place] += np.moveaxis(np.tensordot(upstream, w[tap], ([1], [0])), -1, 1)
    inside = (slice(None), slice(None)) + (slice(edge, -edge or None),) * space
    return y, {"x": dx[inside], "weight": dw}


def pool(reduce, share):
    """`reduce` takes windows (K K, B, C, P, Q) to outputs; `share` says how much of the upstream each value of a window gets."""
    def compute(point, inputs, upstream, output):
        x, stride = inputs["x"], point["stride"]
        height, width = ((size - point["kernel"]) // stride + 1 for size in x.shape[2:])
        places = [(slice(None), slice(None), slice(i, i + stride * height, stride), slice(j, j + stride * width, stride))
                  for i, j in itertools.product(range(point["kernel"]), repeat=2)]
        windows = np.stack([x[place] for place in places])
        y = reduce(windows)
        dx = np.zeros_like(x)
        for place, part in zip(places, share(windows, y)):
            dx[place] += part * upstream
        return y, {"x": dx}
    return compute


def lrn(point, inputs, upstream, output):
    """y = x / s^beta with s = k + alpha / n times the sum of squares over n neighbouring channels (Krizhevsky 2012, Caffe)."""
    x = inputs["x"]
    scale = LRN_K + LRN_ALPHA / LRN_SIZE * _channel_sum(x * x)
    y = x * scale**-LRN_BETA
    back = _channel_sum(upstream * x * scale ** (-LRN_BETA - 1))
    return y, {"x": upstream * scale**-LRN_BETA - 2 * LRN_ALPHA * LRN_BETA / LRN_SIZE * x * back}


def dropout(point, inputs, upstream, output):
    """Kept values are x / (1 - rate); all of the output is wrong where the share of kept ones is not 1 - rate."""
    kept, rate = output != 0, point["rate"]
    sigma = (rate * (1 - rate) / kept.size) ** 0.5
    scale = kept / (1 - rate) if abs(kept.mean() - (1 - rate)) < KEEP_SIGMAS * sigma else np.nan * kept
    return inputs["x"] * scale, {"x": upstream * scale}


def softmax(point, inputs, upstream, output):
    y = np.exp(_log_softmax(inputs["x"]))
    return y, {"x": y * (upstream - (upstream * y).sum(-1, keepdims=True))}


def batch_norm(point, inputs, upstream, output):
    """Each channel by the mean and the biased variance of the batch."""
    x, axes = inputs["x"], (0, 2, 3)
    scale, shift = (inputs[name].reshape(1, -1, 1, 1) for name in NORM_PARAMETERS)
    deviation = (x.var(axes, keepdims=True) + EPSILON) ** 0.5
    normal = (x - x.mean(axes, keepdims=True)) / deviation
    inner = upstream * scale
    dx = (inner - inner.mean(axes, keepdims=True) - normal * (inner * normal).mean(axes, keepdims=True)) / deviation
    return scale * normal + shift, {"x": dx, "scale": (upstream * normal).sum(axes), "shift": upstream.sum(axes)}


def embedding(point, inputs, upstream, output):
    gradient = np.zeros_like(inputs["table"])
    np.add.at(gradient, inputs["x"], upstream)
    return inputs["table"][inputs["x"]], {"table": gradient}


def ctc(point, inputs, upstream, output):
    """Connectionist temporal classification (Graves 2006): -log p of each sample's labels, by forward and backward sums."""
    logs = _log_softmax(inputs["x"])  # (T, B, K)
    losses, gradient = np.zeros(logs.shape[1]), np.exp(logs)
    for sample, labels in enumerate(inputs["labels"]):
        path = np.zeros(2 * len(labels) + 1, int)
        path[1::2] = labels
        log_y = logs[:, sample][:, path]  # (T, S)
        skips = np.concatenate([[False, False], (path[2:] != 0) & (path[2:] != path[:-2])])
        alpha = _prefix_sums(log_y, skips)
        skips_back = np.concatenate([[False, False], (path[::-1][2:] != 0) & (path[::-1][2:] != path[::-1][:-2])])
        beta = _prefix_sums(log_y[::-1, ::-1], skips_back)[::-1, ::-1]
        total = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
        occupied = np.exp(alpha + beta - log_y - total)  # (T, S): probability to be there
        np.subtract.at(gradient[:, sample].T, path, occupied.T)
        losses[sample] = -total
        gradient[:, sample] *= upstream[sample]
    return losses, {"x": gradient}


def hierarchical_softmax(point, inputs, upstream, output):
    """Two levels of equal classes (Goodman 2001, as fbcunn's): -log p(group) - log p(word in its group)."""
    x, clusters, words, labels = (inputs[name] for name in ("x", "clusters", "words", "labels"))
    side, rows = len(clusters), np.arange(len(x))
    group, word = labels // side, labels % side
    outer, inner = _log_softmax(x @ clusters.T), _log_softmax(np.einsum("bf,bnf->bn", x, words[group]))
    d_outer, d_inner = np.exp(outer), np.exp(inner)
    d_outer[rows, group] -= 1
    d_inner[rows, word] -= 1
    d_outer, d_inner = d_outer * upstream[:, None], d_inner * upstream[:, None]
    d_words = np.zeros_like(words)
    np.add.at(d_words, group, d_inner[:, :, None] * x[:, None, :])
    dx = d_outer @ clusters + np.einsum("bn,bnf->bf", d_inner, words[group])
    return -outer[rows, group] - inner[rows, word], {"x": dx, "clusters": d_outer.T @ x, "words": d_words}


def _all_but_one(array):
    return [0, *range(2, array.ndim)]


def _channel_sum(values):
    """Sum over `LRN_SIZE` neighbouring channels, fewer at the edges."""
    edge = LRN_SIZE // 2
    padded = np.pad(values, [(0, 0), (edge, edge), (0, 0), (0, 0)], mode="constant")
    return sum(padded[:, offset:offset + values.shape[1]] for offset in range(LRN_SIZE))


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _prefix_sums(log_y, skips):
    """CTC's forward variables (T, S) in logarithms: a step stays, moves by one, or where `skips` by two."""
    steps, length = log_y.shape
    alpha = np.full((steps, length), -np.inf)
    alpha[0, :2] = log_y[0, :2]
    for t in range(1, steps):
        before = alpha[t - 1]
        one = np.concatenate([[-np.inf], before[:-1]])
        two = np.where(skips, np.concatenate([[-np.inf, -np.inf], before[:-2]]), -np.inf)
        alpha[t] = np.logaddexp(np.logaddexp(before, one), two) + log_y[t]
    return alpha


INPUTS = {
    "conv1d": draw_conv(1), "conv3d": draw_conv(3), "max_pool": draw_pool, "avg_pool": draw_pool, "lp_pool": draw_pool,
    "lrn": draw_image, "dropout": draw_rows, "softmax": draw_rows, "batch_norm": draw_norm, "ctc": draw_speech,
    "embedding": draw_words, "hierarchical_softmax": draw_tree,
}
EXACT = {
    "conv1d": conv, "conv3d": conv,
    "max_pool": pool(lambda windows: windows.max(0), lambda windows, y: windows == y),
    "avg_pool": pool(lambda windows: windows.mean(0), lambda windows, y: np.full(windows.shape, 1 / len(windows))),
    "lp_pool": pool(lambda windows: (windows**2).sum(0) ** 0.5, lambda windows, y: windows / y),  # p = 2
    "lrn": lrn, "dropout": dropout, "softmax": softmax, "batch_norm": batch_norm, "ctc": ctc, "embedding": embedding,
    "hierarchical_softmax": hierarchical_softmax,
}
