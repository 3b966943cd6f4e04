"""Every operation written out in NumPy, forward and backward, in float64.

Each operation is a pair in `OPERATIONS`. `forward(a, w, *inputs)` takes the layer's attributes and
parameters and returns the output and what backward needs. `backward(a, w, saved, dy)` returns the
gradients of the inputs and of the parameters. Python 3.6 syntax, NumPy only.
"""

import numpy as np


def dense(a, w, x):
    rows = x.reshape(-1, x.shape[-1])  # (B, F) or (B T, F)
    y = rows @ w["weight"].T
    y += w["bias"]
    return y.reshape(x.shape[:-1] + (a["units"],)), (rows, x.shape)


def dense_backward(a, w, saved, dy):
    rows, shape = saved
    dy = dy.reshape(len(rows), -1)
    dx = (dy @ w["weight"]).reshape(shape) if a["input_gradient"] else None
    return [dx], {"weight": dy.T @ rows, "bias": dy.sum(axis=0)}


def conv2d(a, w, x):
    """One product a sample, because the columns of a sample stay in the caches."""
    x = pad(x, a["padding"], 0.0)
    filters = by_group(a, w)
    _, height, width = unfold(x, a["kernel"], a["stride"])
    y = np.empty((len(x),) + filters.shape[:2] + (height * width,))
    for sample, out in zip(x, y):
        np.matmul(filters, columns_of(a, sample), out=out)
    y = y.reshape(len(x), a["filters"], height, width)
    if a["bias"]:
        y += w["bias"][:, None, None]
    return y, x


def conv2d_backward(a, w, x, dy):
    height, width = dy.shape[2:]
    filters = by_group(a, w)
    dfilters, of_sample = np.zeros(filters.shape), np.empty(filters.shape)
    shape = x.shape[:2] + tuple(size - 2 * a["padding"] for size in x.shape[2:])
    dx = np.empty(shape) if a["input_gradient"] else None
    # (G, filters / G, H W) each
    for sample, part in enumerate(dy.reshape((len(dy),) + filters.shape[:2] + (-1,))):
        dfilters += np.matmul(part, columns_of(a, x[sample]).swapaxes(1, 2), out=of_sample)
        if dx is not None:
            columns = filters.swapaxes(1, 2) @ part
            dx[sample] = fold(columns, (1,) + shape[1:], a, height, width)[0]
    gradients = {"weight": dfilters.reshape(w["weight"].shape)}
    if a["bias"]:
        gradients["bias"] = dy.sum(axis=(0, 2, 3))
    return [dx], gradients


def max_pool(a, w, x):
    framed = pad(x, a["padding"], -np.inf)
    if a["ceil"]:
        # Room for a last window that begins in the image.
        room = [(0, (a["kernel"] - size) % a["stride"]) for size in framed.shape[2:]]
        framed = np.pad(framed, [(0, 0), (0, 0)] + room, "constant", constant_values=-np.inf)
    windows, height, width = unfold(framed, a["kernel"], a["stride"])
    windows = windows.reshape(x.shape[:2] + (-1, height, width))  # (B, C, k k, H, W)
    # Of equal values the first is the largest, as in PyTorch and cuDNN.
    return windows.max(axis=2), (x.shape, windows.argmax(axis=2))


def max_pool_backward(a, w, saved, dy):
    shape, largest = saved
    chosen = largest[:, :, None] == np.arange(a["kernel"] ** 2)[:, None, None]
    return [fold(chosen * dy[:, :, None], shape, a, *dy.shape[2:])], {}


def avg_pool(a, w, x):
    windows, _, _ = unfold(pad(x, a["padding"], 0.0), a["kernel"], a["stride"])
    return windows.mean(axis=(2, 3)), x.shape


def avg_pool_backward(a, w, shape, dy):
    size = a["kernel"] ** 2
    shares = np.broadcast_to(dy[:, :, None] / size, dy.shape[:2] + (size,) + dy.shape[2:])
    return [fold(shares, shape, a, *dy.shape[2:])], {}


def global_avg_pool(a, w, x):
    return x.mean(axis=(2, 3)), x.shape  # (B, C, H, W) -> (B, C)


def global_avg_pool_backward(a, w, shape, dy):
    return [np.broadcast_to(dy[:, :, None, None] / (shape[2] * shape[3]), shape)], {}


def relu(a, w, x):
    return np.maximum(x, 0), x > 0


def relu_backward(a, w, positive, dy):
    return [dy * positive], {}


def sigmoid(a, w, x):
    y = logistic(x)
    return y, y


def sigmoid_backward(a, w, y, dy):
    return [dy * y * (1 - y)], {}


def dropout(a, w, x):
    kept = 1.0
    if a["random"]:
        kept = (a["random"].random_sample(x.shape) >= a["rate"]) / (1 - a["rate"])
    return x * kept, kept


def dropout_backward(a, w, kept, dy):
    return [dy * kept], {}


def batch_norm(a, w, x):
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    normal = x - mean
    variance = np.square(normal).mean(axis=(0, 2, 3), keepdims=True)
    deviation = np.sqrt(variance + a["epsilon"])  # (1, C, 1, 1)
    normal /= deviation
    y = normal * w["scale"][:, None, None]
    y += w["shift"][:, None, None]
    return y, (normal, deviation, mean.ravel(), variance.ravel())


def batch_norm_backward(a, w, saved, dy):
    normal, deviation = saved[:2]
    axes = (0, 2, 3)
    scale, shift = (dy * normal).sum(axis=axes), dy.sum(axis=axes)
    count = normal.size // normal.shape[1]
    # The mean and the variance depend on x, too.
    dx = dy - (shift / count)[:, None, None]
    dx -= normal * (scale / count)[:, None, None]
    dx *= w["scale"][:, None, None] / deviation
    return [dx], {"scale": scale, "shift": shift}


def lrn(a, w, x):
    base = 1 + a["alpha"] / a["size"] * neighbours(x ** 2, a["size"])
    return x * base ** -a["beta"], (x, base)


def lrn_backward(a, w, saved, dy):
    x, base = saved
    # A channel is part of the base of all its neighbours.
    of_base = neighbours(dy * x * base ** (-a["beta"] - 1), a["size"])
    return [dy * base ** -a["beta"] - 2 * a["alpha"] * a["beta"] / a["size"] * x * of_base], {}


def concat(a, w, *images):
    return np.concatenate(images, axis=1), [image.shape[1] for image in images]


def concat_backward(a, w, channels, dy):
    return np.split(dy, np.cumsum(channels)[:-1], axis=1), {}


def add(a, w, left, right):
    # NumPy would broadcast.
    if left.shape != right.shape:
        raise ValueError("adds {} and {}".format(left.shape[1:], right.shape[1:]))
    return left + right, None


def add_backward(a, w, saved, dy):
    return [dy, dy], {}


def flatten(a, w, x):
    return x.reshape(len(x), -1), x.shape  # (B, C, H, W) -> (B, C H W)


def flatten_backward(a, w, shape, dy):
    return [dy.reshape(shape)], {}


def subsample(a, w, x):
    return x[:, :, ::a["stride"], ::a["stride"]], x.shape


def subsample_backward(a, w, shape, dy):
    dx = np.zeros(shape)
    dx[:, :, ::a["stride"], ::a["stride"]] = dy
    return [dx], {}


def pad_channels(a, w, x):
    return np.pad(x, ((0, 0), (0, a["extra"]), (0, 0), (0, 0)), "constant"), x.shape[1]


def pad_channels_backward(a, w, channels, dy):
    return [dy[:, :channels]], {}


def embedding(a, w, words):
    return w["weight"][words], words  # (B, T) -> (B, T, F)


def embedding_backward(a, w, words, dy):
    dweight = np.zeros_like(w["weight"])
    # A word may come twice.
    np.add.at(dweight, words, dy)
    return [None], {"weight": dweight}


def lstm(a, w, x):
    """c = f c + i g, h = o tanh(c); i f o are logistic and g tanh of x W_in^T + h W_h^T + b."""
    (B, T, _), H = x.shape, a["units"]
    z = (x.reshape(B * T, -1) @ w["weight_input"].T + w["bias"]).reshape(B, T, 4, H)
    gates = np.empty((B, T, 4, H))  # i f g o
    # [:, 0] is the state at the start.
    h, c = np.zeros((B, T + 1, H)), np.zeros((B, T + 1, H))
    rounded = a.get("rounded", exact)
    for t in range(T):
        z[:, t] = rounded(z[:, t] + (h[:, t] @ w["weight_hidden"].T).reshape(B, 4, H))
        gates[:, t] = logistic(z[:, t])
        gates[:, t, 2] = np.tanh(z[:, t, 2])
        gates[:, t] = rounded(gates[:, t])
        i, f, g, o = gates[:, t].swapaxes(0, 1)  # each (B, H)
        c[:, t + 1] = rounded(rounded(f * c[:, t]) + rounded(i * g))
        h[:, t + 1] = rounded(o * rounded(np.tanh(c[:, t + 1])))
    return h[:, 1:], (x, gates, h, c)


def lstm_backward(a, w, saved, dy):
    x, gates, h, c = saved
    (B, T, _), H = x.shape, a["units"]
    dz = np.empty((B, T, 4, H))
    dh, dc = np.zeros((B, H)), np.zeros((B, H))
    rounded = a.get("rounded", exact)
    for t in reversed(range(T)):
        i, f, g, o = gates[:, t].swapaxes(0, 1)
        squashed = np.tanh(c[:, t + 1])
        dh = rounded(dh + dy[:, t])
        dc = rounded(dc + rounded(dh * o) * rounded(1 - squashed ** 2))
        dz[:, t, 0] = dc * g * i * (1 - i)
        dz[:, t, 1] = dc * c[:, t] * f * (1 - f)
        dz[:, t, 2] = dc * i * (1 - g ** 2)
        dz[:, t, 3] = dh * squashed * o * (1 - o)
        dz[:, t] = rounded(dz[:, t])
        dh = dz[:, t].reshape(B, 4 * H) @ w["weight_hidden"]
        dc = rounded(dc * f)
    dz = dz.reshape(B * T, 4 * H)
    dx = (dz @ w["weight_input"]).reshape(x.shape) if a["input_gradient"] else None
    return [dx], {"weight_input": dz.T @ x.reshape(B * T, -1), "bias": dz.sum(axis=0),
                  "weight_hidden": dz.T @ h[:, :-1].reshape(B * T, H)}


def softmax_cross_entropy(logits, targets):
    """Mean loss and its gradient: logits (B, K) or (B, T, K), targets (B) or (B, T)."""
    rows = logits.reshape(-1, logits.shape[-1])
    chosen = (np.arange(len(rows)), targets.reshape(-1))
    shifted = rows - rows.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    loss = (np.log(sums[:, 0]) - shifted[chosen]).mean()
    gradient = exponentials / sums
    gradient[chosen] -= 1
    gradient /= len(rows)
    return float(loss), gradient.reshape(logits.shape)


OPERATIONS = {
    "dense": (dense, dense_backward),
    "conv2d": (conv2d, conv2d_backward),
    "max_pool": (max_pool, max_pool_backward),
    "avg_pool": (avg_pool, avg_pool_backward),
    "global_avg_pool": (global_avg_pool, global_avg_pool_backward),
    "relu": (relu, relu_backward),
    "sigmoid": (sigmoid, sigmoid_backward),
    "dropout": (dropout, dropout_backward),
    "batch_norm": (batch_norm, batch_norm_backward),
    "lrn": (lrn, lrn_backward),
    "concat": (concat, concat_backward),
    "add": (add, add_backward),
    "flatten": (flatten, flatten_backward),
    "subsample": (subsample, subsample_backward),
    "pad_channels": (pad_channels, pad_channels_backward),
    "embedding": (embedding, embedding_backward),
    "lstm": (lstm, lstm_backward),
}

# Shapes of what an operation trains, from its attributes and its input's shape without the batch.
PARAMETERS = {
    "dense": lambda a, x: {"weight": (a["units"], x[-1]), "bias": (a["units"],)},
    "conv2d": lambda a, x: dict(
        {"weight": (a["filters"], x[0] // a["groups"], a["kernel"], a["kernel"])},
        **({"bias": (a["filters"],)} if a["bias"] else {})),
    "batch_norm": lambda a, x: {"scale": x[:1], "shift": x[:1]},
    "embedding": lambda a, x: {"weight": (a["vocabulary"], a["units"])},
    "lstm": lambda a, x: {"weight_input": (4 * a["units"], x[-1]), "bias": (4 * a["units"],),
                          "weight_hidden": (4 * a["units"], a["units"])},
}


def exact(x):
    """What arithmetic without rounding makes of an intermediate result."""
    return x


def logistic(x):
    """1 / (1 + exp(-x)), without its overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def by_group(a, w):
    """Filters as matrices: (G, filters / G, C / G k k)."""
    return w["weight"].reshape(a["groups"], a["filters"] // a["groups"], -1)


def pad(x, padding, value):
    """Frame each image: (B, C, H, W) -> (B, C, H + 2 padding, W + 2 padding)."""
    edges = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    return np.pad(x, edges, "constant", constant_values=value) if padding else x


def unfold(x, kernel, stride):
    """View every whole window: (B, C, H, W) -> (B, C, k, k, height, width), height, width."""
    (B, C, H, W), (b, c, h, w) = x.shape, x.strides
    height, width = (H - kernel) // stride + 1, (W - kernel) // stride + 1
    if height < 1 or width < 1:
        raise ValueError("windows of {} do not fit into {} x {}".format(kernel, H, W))
    shape, strides = (B, C, kernel, kernel, height, width), (b, c, h, w, h * stride, w * stride)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False), height, width


def columns_of(a, sample):
    """The windows of a framed sample (C, H, W) as columns: (G, C / G k k, height width)."""
    windows, height, width = unfold(sample[None], a["kernel"], a["stride"])
    return windows.reshape(a["groups"], -1, height * width)


def fold(dcolumns, shape, a, height, width):
    """The gradient of `pad` and `unfold`: add every window's values where they came from."""
    kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
    # Every window is a pixel, as in 33 of ResNet-50's 53 convolutions.
    if kernel == stride == 1 and not padding:
        return dcolumns.reshape(shape)
    dcolumns = dcolumns.reshape(shape[:2] + (kernel, kernel, height, width))
    framed = tuple(max(2 * padding + size, stride * (windows - 1) + kernel)
                   for size, windows in zip(shape[2:], (height, width)))
    dx = np.zeros(shape[:2] + framed)
    for row in range(kernel):
        for column in range(kernel):
            rows = slice(row, row + stride * height, stride)
            columns = slice(column, column + stride * width, stride)
            dx[:, :, rows, columns] += dcolumns[:, :, row, column]
    return dx[:, :, padding:padding + shape[2], padding:padding + shape[3]]


def neighbours(x, size):
    """Sum over `size` neighbouring channels, with zeros beyond the first and the last."""
    framed = np.pad(x, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)), "constant")
    return sum(framed[:, first:first + x.shape[1]] for first in range(size))
