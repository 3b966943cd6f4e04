"""The layers of the layers study in float64: seeded inputs, and exact outputs and gradients.

Canonical layouts: x is (B, C, *space), weights (out, in, *kernel). Gradients are those of
sum(output * upstream). What a network has, too, is computed by the runner of the reference; the
other formulas are those of the layers' own papers.
"""

import itertools

import numpy as np

from runners.reference.operations import OPERATIONS

# Batch norm's.
EPSILON = 1e-5
# AlexNet's values, except alpha: its 1e-4 would hide a wrong sum.
LRN_SIZE, LRN_ALPHA, LRN_BETA, LRN_K = 5, 0.1, 0.75, 1.0
# How far the share of kept values may lie from the rate, in standard deviations.
KEEP_SIGMAS = 6
# They stay in float32.
NORM_PARAMETERS = ("scale", "shift")
# A prime: neighbours within it differ, and its multiples of 1/512 are exact in fp16.
DISTINCT = 1021


def draw(point, batch, seed=0):
    """Draw the inputs of a layer by name, in the point's precision; labels and words are int32."""
    arrays = INPUTS[point["layer"]](point, batch, np.random.default_rng(seed))
    kinds = {"labels": np.int32, **dict.fromkeys(NORM_PARAMETERS, np.float32)}
    if point["layer"] == "embedding":
        kinds["x"] = np.int32
    return {name: array.astype(kinds.get(name, kind_of(point))) for name, array in arrays.items()}


def draw_upstream(point, shape, seed=1):
    """Draw the gradient of the loss with respect to the output, in the point's precision."""
    return noise(np.random.default_rng(seed), shape).astype(kind_of(point))


def kind_of(point):
    return np.float16 if point["precision"] == "fp16" else np.float32


def exact(point, arrays, upstream, output=None):
    """Return (output, gradients by name) in float64; dropout follows the choice in `output`."""
    inputs = {name: array if array.dtype == np.int32 else array.astype(np.float64)
              for name, array in arrays.items()}
    return EXACT[point["layer"]](point, inputs, upstream.astype(np.float64), output)


def output_shape(point, arrays):
    """Return the shape of the output for these inputs."""
    x, layer = arrays["x"], point["layer"]
    if layer in ("conv1d", "conv3d"):
        return (len(x), len(arrays["weight"]), *x.shape[2:])
    if layer.endswith("_pool"):
        sizes = ((size - point["kernel"]) // point["stride"] + 1 for size in x.shape[2:])
        return (*x.shape[:2], *sizes)
    if layer == "embedding":
        return (*x.shape, arrays["table"].shape[1])
    return {"ctc": x.shape[1:2], "hierarchical_softmax": x.shape[:1]}.get(layer, x.shape)


def noise(generator, shape):
    """Repeat normal random numbers of two samples: drawing a whole batch would take seconds."""
    return np.resize(generator.standard_normal((min(shape[0], 2), *shape[1:]), np.float32), shape)


def draw_conv(dimensions):
    def make(point, batch, generator):
        c, k = point["channels"], point["kernel"]
        x = noise(generator, (batch, c) + (point["size"],) * dimensions)
        weight = generator.standard_normal((c, c) + (k,) * dimensions)
        return {"x": x, "weight": weight / (c * k**dimensions) ** 0.5}
    return make


def draw_pool(point, batch, generator):
    shape = (batch, point["channels"], point["size"], point["size"])
    # No two values in a window are alike, so there are no ties.
    return {"x": np.resize((387 * np.arange(np.prod(shape[1:])) % DISTINCT) / 512 - 1, shape)}


def draw_norm(point, batch, generator):
    c = point["channels"]
    return {**draw_image(point, batch, generator), "scale": 1 + 0.1 * generator.standard_normal(c),
            "shift": 0.1 * generator.standard_normal(c)}


def draw_image(point, batch, generator):
    return {"x": noise(generator, (batch, point["channels"], point["size"], point["size"]))}


def draw_rows(point, batch, generator):
    return {"x": noise(generator, (batch, point["channels"]))}


def draw_words(point, batch, generator):
    words = generator.integers(point["classes"], size=(batch, point["size"]))
    table = generator.standard_normal((point["classes"], point["channels"]), np.float32)
    return {"x": words, "table": table}


def draw_speech(point, batch, generator):
    # (T, B, K), class 0 is the blank.
    logits = generator.standard_normal((point["size"], batch, point["classes"]))
    labels = generator.integers(1, point["classes"], size=(batch, point["labels"]))
    return {"x": logits, "labels": labels}


def draw_tree(point, batch, generator):
    features, side = point["channels"], int(point["classes"] ** 0.5)
    return {"x": generator.standard_normal((batch, features)),
            "clusters": generator.standard_normal((side, features)) / features**0.5,  # (G, F)
            # (G, K / G, F)
            "words": generator.standard_normal((side, side, features)) / features**0.5,
            "labels": generator.integers(side * side, size=batch)}


def conv(point, inputs, upstream, output):
    """y[b, k, p] = sum over c, r of x[b, c, p + r] w[k, c, r]; padding keeps the size."""
    x, w = inputs["x"], inputs["weight"]
    space = x.ndim - 2
    edge = point["kernel"] // 2
    padded = np.pad(x, [(0, 0), (0, 0)] + [(edge, edge)] * space, mode="constant")
    y, dw, dx = np.zeros_like(upstream), np.zeros_like(w), np.zeros_like(padded)
    all_but_channels = [0, *range(2, x.ndim)]
    for offset in itertools.product(range(point["kernel"]), repeat=space):
        window = (slice(o, o + size) for o, size in zip(offset, x.shape[2:]))
        place, tap = (slice(None), slice(None), *window), (slice(None), slice(None), *offset)
        y += np.moveaxis(np.tensordot(padded[place], w[tap], ([1], [1])), -1, 1)
        dw[tap] = np.tensordot(upstream, padded[place], (all_but_channels, all_but_channels))
        dx[place] += np.moveaxis(np.tensordot(upstream, w[tap], ([1], [0])), -1, 1)
    inside = (slice(None), slice(None)) + (slice(edge, -edge or None),) * space
    return y, {"x": dx[inside], "weight": dw}


def lp_pool(point, inputs, upstream, output):
    """The root of the sum of squares of each window (p = 2)."""
    x, stride = inputs["x"], point["stride"]
    height, width = upstream.shape[2:]
    places = [(slice(None), slice(None), slice(i, i + stride * height, stride),
               slice(j, j + stride * width, stride))
              for i, j in itertools.product(range(point["kernel"]), repeat=2)]
    y = sum(x[place] ** 2 for place in places) ** 0.5
    dx = np.zeros_like(x)
    for place in places:
        dx[place] += x[place] / y * upstream
    return y, {"x": dx}


def of_network(operation, attributes, parameters=()):
    """A layer that networks have: `attributes` of a point, `parameters` as (ours, reference's)."""
    forward, backward = OPERATIONS[operation]

    def compute(point, inputs, upstream, output):
        a, w = attributes(point), {theirs: inputs[ours] for ours, theirs in parameters}
        y, saved = forward(a, w, inputs["x"])
        (dx,), gradients = backward(a, w, saved, upstream)
        found = {ours: gradients[theirs] for ours, theirs in parameters}
        return y, found if dx is None else {"x": dx, **found}

    return compute


def windows_of(point):
    return {"kernel": point["kernel"], "stride": point["stride"], "padding": 0, "ceil": False}


def dropout(point, inputs, upstream, output):
    """Kept values are x / (1 - rate). All is nan if the share of kept ones is not 1 - rate."""
    kept, rate = output != 0, point["rate"]
    sigma = (rate * (1 - rate) / kept.size) ** 0.5
    right = abs(kept.mean() - (1 - rate)) < KEEP_SIGMAS * sigma
    scale = kept / (1 - rate) if right else np.nan * kept
    return inputs["x"] * scale, {"x": upstream * scale}


def softmax(point, inputs, upstream, output):
    y = np.exp(_log_softmax(inputs["x"]))
    return y, {"x": y * (upstream - (upstream * y).sum(-1, keepdims=True))}


def ctc(point, inputs, upstream, output):
    """Connectionist temporal classification (Graves 2006): -log p of each sample's labels."""
    logs = _log_softmax(inputs["x"])  # (T, B, K)
    losses, gradient = np.zeros(logs.shape[1]), np.exp(logs)
    for sample, labels in enumerate(inputs["labels"]):
        path = np.zeros(2 * len(labels) + 1, int)
        path[1::2] = labels
        log_y = logs[:, sample][:, path]  # (T, S)
        alpha = _prefix_sums(log_y, path)
        beta = _prefix_sums(log_y[::-1, ::-1], path[::-1])[::-1, ::-1]
        total = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
        # The probability to be there, (T, S).
        occupied = np.exp(alpha + beta - log_y - total)
        np.subtract.at(gradient[:, sample].T, path, occupied.T)
        losses[sample] = -total
        gradient[:, sample] *= upstream[sample]
    return losses, {"x": gradient}


def hierarchical_softmax(point, inputs, upstream, output):
    """Two levels of equal classes (Goodman 2001): -log p(group) - log p(word in its group)."""
    x, clusters, words, labels = (inputs[name] for name in ("x", "clusters", "words", "labels"))
    side, rows = len(clusters), np.arange(len(x))
    group, word = labels // side, labels % side
    outer = _log_softmax(x @ clusters.T)
    inner = _log_softmax(np.einsum("bf,bnf->bn", x, words[group]))
    d_outer, d_inner = np.exp(outer), np.exp(inner)
    d_outer[rows, group] -= 1
    d_inner[rows, word] -= 1
    d_outer, d_inner = d_outer * upstream[:, None], d_inner * upstream[:, None]
    d_words = np.zeros_like(words)
    np.add.at(d_words, group, d_inner[:, :, None] * x[:, None, :])
    dx = d_outer @ clusters + np.einsum("bn,bnf->bf", d_inner, words[group])
    losses = -outer[rows, group] - inner[rows, word]
    return losses, {"x": dx, "clusters": d_outer.T @ x, "words": d_words}


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _prefix_sums(log_y, path):
    """CTC's forward variables (T, S) as logarithms: a step moves by 0, 1 or, over a blank, 2."""
    skips = np.concatenate([[False, False], (path[2:] != 0) & (path[2:] != path[:-2])])
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
    "conv1d": draw_conv(1), "conv3d": draw_conv(3), "max_pool": draw_pool, "avg_pool": draw_pool,
    "lp_pool": draw_pool, "lrn": draw_image, "dropout": draw_rows, "softmax": draw_rows,
    "batch_norm": draw_norm, "ctc": draw_speech, "embedding": draw_words,
    "hierarchical_softmax": draw_tree,
}
EXACT = {
    "conv1d": conv, "conv3d": conv, "lp_pool": lp_pool, "dropout": dropout, "softmax": softmax,
    "ctc": ctc, "hierarchical_softmax": hierarchical_softmax,
    "max_pool": of_network("max_pool", windows_of), "avg_pool": of_network("avg_pool", windows_of),
    "lrn": of_network("lrn", lambda point: {"size": LRN_SIZE, "alpha": LRN_ALPHA,
                                            "beta": LRN_BETA}),
    "batch_norm": of_network("batch_norm", lambda point: {"epsilon": EPSILON},
                             [(name, name) for name in NORM_PARAMETERS]),
    "embedding": of_network("embedding", lambda point: {}, [("table", "weight")]),
}
