"""The judge: every operation written out in NumPy, forward and backward, in float64: plainly, but checks wait for it.

Each operation is a pair in `OPERATIONS`. `forward(a, w, *inputs)` takes the layer's attributes and parameters and returns the
output and what the backward pass needs; `backward(a, w, saved, dy)` returns the gradients of the inputs and of the parameters.
Gradients and parameters leave in float64, sharper than what they judge. Threads are those of NumPy's BLAS (OMP_NUM_THREADS).
Several devices are shards of the batch, a thread each, normalised by themselves as data-parallel training does, and their
gradients' mean.
Python 3.6 syntax, NumPy only, so that it can stand beside every framework in that framework's own environment.
"""

import platform
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from runners.protocol import Different, Product, Unsupported, assert_network
from runners.protocol import Runner as BaseRunner


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
    """One product a sample: its columns stay in the caches, where those of a whole batch would be new memory for every layer."""
    x = pad(x, a["padding"], 0.0)
    filters = w["weight"].reshape(a["groups"], a["filters"] // a["groups"], -1)  # (G, filters / G, C / G k k)
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
    filters = w["weight"].reshape(a["groups"], a["filters"] // a["groups"], -1)  # (G, filters / G, C / G k k)
    dfilters, of_sample = np.zeros(filters.shape), np.empty(filters.shape)
    frame = 2 * a["padding"]
    dx = np.empty(x.shape[:2] + (x.shape[2] - frame, x.shape[3] - frame)) if a["input_gradient"] else None
    for sample, part in enumerate(dy.reshape((len(dy),) + filters.shape[:2] + (height * width,))):  # (G, filters / G, H W)
        dfilters += np.matmul(part, columns_of(a, x[sample]).swapaxes(1, 2), out=of_sample)
        if dx is not None:
            dx[sample] = fold(filters.swapaxes(1, 2) @ part, (1,) + dx.shape[1:], a, height, width)[0]
    gradients = {"weight": dfilters.reshape(w["weight"].shape)}
    if a["bias"]:
        gradients["bias"] = dy.sum(axis=(0, 2, 3))
    return [dx], gradients


def max_pool(a, w, x):
    framed = pad(x, a["padding"], -np.inf)
    if a["ceil"]:  # room for a last window that begins in the image
        room = [(a["kernel"] - size) % a["stride"] for size in framed.shape[2:]]
        framed = np.pad(framed, ((0, 0), (0, 0), (0, room[0]), (0, room[1])), "constant", constant_values=-np.inf)
    windows, height, width = unfold(framed, a["kernel"], a["stride"])
    windows = windows.reshape(x.shape[:2] + (-1, height, width))  # (B, C, k k, H, W)
    return windows.max(axis=2), (x.shape, windows.argmax(axis=2))  # of equal values the first, as PyTorch and cuDNN have it


def max_pool_backward(a, w, saved, dy):
    shape, largest = saved
    chosen = largest[:, :, None] == np.arange(a["kernel"] ** 2)[:, None, None]  # (B, C, k k, H, W)
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
    kept = (a["random"].random_sample(x.shape) >= a["rate"]) / (1 - a["rate"]) if a["random"] else 1.0
    return x * kept, kept


def dropout_backward(a, w, kept, dy):
    return [dy * kept], {}


def batch_norm(a, w, x):
    normal = x - x.mean(axis=(0, 2, 3), keepdims=True)
    deviation = np.sqrt(np.square(normal).mean(axis=(0, 2, 3), keepdims=True) + a["epsilon"])  # (1, C, 1, 1)
    normal /= deviation
    y = normal * w["scale"][:, None, None]
    y += w["shift"][:, None, None]
    return y, (normal, deviation)


def batch_norm_backward(a, w, saved, dy):
    normal, deviation = saved
    axes = (0, 2, 3)
    scale, shift = (dy * normal).sum(axis=axes), dy.sum(axis=axes)
    count = normal.size // normal.shape[1]
    dx = dy - (shift / count)[:, None, None]  # both means depend on x
    dx -= normal * (scale / count)[:, None, None]
    dx *= w["scale"][:, None, None] / deviation
    return [dx], {"scale": scale, "shift": shift}


def lrn(a, w, x):
    base = 1 + a["alpha"] / a["size"] * neighbours(x ** 2, a["size"])
    return x * base ** -a["beta"], (x, base)


def lrn_backward(a, w, saved, dy):
    x, base = saved
    of_base = neighbours(dy * x * base ** (-a["beta"] - 1), a["size"])  # a channel stands in the base of all its neighbours
    return [dy * base ** -a["beta"] - 2 * a["alpha"] * a["beta"] / a["size"] * x * of_base], {}


def concat(a, w, *images):
    return np.concatenate(images, axis=1), [image.shape[1] for image in images]


def concat_backward(a, w, channels, dy):
    return np.split(dy, np.cumsum(channels)[:-1], axis=1), {}


def add(a, w, left, right):
    if left.shape != right.shape:  # NumPy would broadcast
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
    np.add.at(dweight, words, dy)  # a word may come twice
    return [None], {"weight": dweight}


def lstm(a, w, x):
    """c = f c + i g, h = o tanh(c); i f o are logistic, g is tanh of x W_input^T + h W_hidden^T + b."""
    (B, T, _), H = x.shape, a["units"]
    z = (x.reshape(B * T, -1) @ w["weight_input"].T + w["bias"]).reshape(B, T, 4, H)
    gates = np.empty((B, T, 4, H))  # i f g o
    h, c = np.zeros((B, T + 1, H)), np.zeros((B, T + 1, H))  # [:, 0] is the state at the start
    for t in range(T):
        z[:, t] += (h[:, t] @ w["weight_hidden"].T).reshape(B, 4, H)
        gates[:, t] = logistic(z[:, t])
        gates[:, t, 2] = np.tanh(z[:, t, 2])
        i, f, g, o = gates[:, t].swapaxes(0, 1)  # each (B, H)
        c[:, t + 1] = f * c[:, t] + i * g
        h[:, t + 1] = o * np.tanh(c[:, t + 1])
    return h[:, 1:], (x, gates, h, c)


def lstm_backward(a, w, saved, dy):
    x, gates, h, c = saved
    (B, T, _), H = x.shape, a["units"]
    dz = np.empty((B, T, 4, H))
    dh, dc = np.zeros((B, H)), np.zeros((B, H))
    for t in reversed(range(T)):
        i, f, g, o = gates[:, t].swapaxes(0, 1)
        squashed = np.tanh(c[:, t + 1])
        dh = dh + dy[:, t]
        dc = dc + dh * o * (1 - squashed ** 2)
        dz[:, t, 0] = dc * g * i * (1 - i)
        dz[:, t, 1] = dc * c[:, t] * f * (1 - f)
        dz[:, t, 2] = dc * i * (1 - g ** 2)
        dz[:, t, 3] = dh * squashed * o * (1 - o)
        dh = dz[:, t].reshape(B, 4 * H) @ w["weight_hidden"]
        dc = dc * f
    dz = dz.reshape(B * T, 4 * H)
    dx = (dz @ w["weight_input"]).reshape(x.shape) if a["input_gradient"] else None
    return [dx], {"weight_input": dz.T @ x.reshape(B * T, -1), "weight_hidden": dz.T @ h[:, :-1].reshape(B * T, H),
                  "bias": dz.sum(axis=0)}


def softmax_cross_entropy(logits, targets):
    """Mean loss over the batch (and words), and its gradient; logits (B, K) or (B, T, K), targets (B) or (B, T)."""
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

PARAMETERS = {  # shapes of what an operation trains, from its attributes and its input's shape without the batch
    "dense": lambda a, x: {"weight": (a["units"], x[-1]), "bias": (a["units"],)},
    "conv2d": lambda a, x: dict({"weight": (a["filters"], x[0] // a["groups"], a["kernel"], a["kernel"])},
                                **({"bias": (a["filters"],)} if a["bias"] else {})),
    "batch_norm": lambda a, x: {"scale": x[:1], "shift": x[:1]},
    "embedding": lambda a, x: {"weight": (a["vocabulary"], a["units"])},
    "lstm": lambda a, x: {"weight_input": (4 * a["units"], x[-1]), "weight_hidden": (4 * a["units"], a["units"]),
                          "bias": (4 * a["units"],)},
}


class Runner(BaseRunner):
    operations = OPERATIONS

    @staticmethod
    def describe():
        return {"release": np.__version__, "device_name": platform.processor() or platform.machine()}

    def __init__(self, task):
        refuse_what_is_missing(task, self.operations)
        self.shards = task.devices // task.ranks
        self.network = task.network
        self.layers = task.network["layers"]
        self.trained = depends_on_parameters(self.layers)
        self.last_reader = {source: layer["name"] for layer in self.layers for source in layer["inputs"]}
        random = np.random.RandomState(task.seed) if task.dropout else None
        self.threads = 1 if random else self.shards  # in the order of the shards, dropout follows its seed
        self.attributes = {
            layer["name"]: dict(layer["attributes"], random=random, input_gradient=layer["inputs"][0] in self.trained)
            for layer in self.layers
        }
        self._build()

    def load(self, weights):
        for name, present in self.weights.items():
            if weights[name].shape != present.shape:
                raise ValueError("weights of {}: {}, the network has {}".format(name, weights[name].shape, present.shape))
            self.weights[name][...] = weights[name]  # in place: new memory costs more than copying
            self.velocities[name][...] = 0
        self.first = None

    def feed(self, inputs, targets, residence):
        self.ring = [(self._place(x) if residence == "device" else x, y) for x, y in zip(inputs, targets)]
        self.position = 0
        self.first = None  # loss and gradients of batch 0 at the present parameters, where they were asked for

    def step(self):
        batch = self.position % len(self.ring)
        first, self.first = self.first, None
        self.last_loss, gradients = first if first and batch == 0 else self.differentiate(*self.ring[batch])
        for name, gradient in gradients:
            self.update(name, gradient)
        self.position += 1

    def synchronize(self):
        pass  # NumPy returns when it is done

    def loss(self):
        return self.last_loss

    def gradients(self):
        loss, gradients = self.differentiate(*self.ring[0])
        gradients = dict(gradients)
        self.first = loss, list(gradients.items())  # a check's first step wants the same again
        return gradients

    def copies(self):
        return [self.parameters()] * self.shards  # they share one

    def parameters(self):
        return {name: array.copy() for name, array in self.weights.items()}

    @staticmethod
    def product(size, task):
        """NumPy's own product in float32: the machine's peak on a CPU whose frameworks offer none."""
        refuse_other_arithmetic(task)
        generator = np.random.RandomState(task.seed)
        left, right = (generator.standard_normal((size, size)).astype(np.float32) for _ in range(2))
        out = np.empty((size, size), np.float32)
        return Product(lambda: np.dot(left, right, out=out), lambda result: None)

    @staticmethod
    def stream(elements, task):
        refuse_other_arithmetic(task)
        source, target = np.ones(elements, np.float32), np.ones(elements, np.float32)
        return Product(lambda: np.multiply(source, np.float32(3), out=target), lambda result: None)

    def differentiate(self, x, targets):
        """The mean loss of a batch, and the name and gradient of each parameter."""
        if self.shards > 1:
            return self._differentiate_shards(x, targets)
        logits, saved = self.forward(self._place(x))
        loss, dlogits = softmax_cross_entropy(logits, targets)
        return loss, self.backward(dlogits, saved)

    def update(self, name, gradient):
        """v = momentum v + g, w = w - lr v, in place."""
        velocity = self.velocities[name]
        velocity *= self.network["momentum"]
        velocity += gradient
        self.weights[name] -= self.network["learning_rate"] * velocity

    def forward(self, x):
        """The last layer's output, and what each layer saved for its backward pass."""
        outputs, saved = {"input": x}, {}
        for layer in self.layers:
            outputs[layer["name"]], saved[layer["name"]] = self._forward_layer(layer, outputs)
            for source in set(layer["inputs"]):
                if self.last_reader[source] == layer["name"]:
                    del outputs[source]  # deep networks on large images would keep gigabytes that nobody reads again
        return outputs[self.layers[-1]["name"]], saved

    def backward(self, dlogits, saved):
        """Yield each parameter's full name and gradient, from the last layer to the first.

        Once they are out, nothing reads that layer's weights again, so they may be updated at once: FCN-S has 118 M parameters
        and needs no room for all their gradients.
        """
        gradients = {self.layers[-1]["name"]: dlogits}
        for layer in reversed(self.layers):
            name = layer["name"]
            if name not in self.trained:
                continue
            w = self._weights_of(layer)
            if name not in gradients:  # not on the path to the loss
                inputs, parameters = [], {key: np.zeros(array.shape) for key, array in w.items()}
            else:
                _, backward = self.operations[layer["op"]]
                inputs, parameters = backward(self.attributes[name], w, saved.pop(name), gradients.pop(name))
            for source, gradient in zip(layer["inputs"], inputs):
                if source in self.trained:
                    gradients[source] = gradients[source] + gradient if source in gradients else gradient
            for key, gradient in parameters.items():
                yield name + "." + key, gradient

    def _differentiate_shards(self, x, targets):
        def differentiate(part, wanted):
            logits, saved = self.forward(self._place(part))
            loss, dlogits = softmax_cross_entropy(logits, wanted)
            return loss / self.shards, dict(self.backward(dlogits / self.shards, saved))

        with ThreadPoolExecutor(self.threads) as pool:
            losses, parts = zip(*pool.map(differentiate, np.split(x, self.shards), np.split(targets, self.shards)))
        return sum(losses), [(name, sum(part[name] for part in parts)) for name in parts[0]]

    def _build(self):
        """Make the parameters from what really flows, one sample of zeros, and compare every shape with the network's."""
        words = self.network["vocabulary"]
        outputs = {"input": np.zeros([1] + list(self.network["input_shape"]), np.int32 if words else np.float64)}
        self.weights = {}
        self.keys = {}  # layer -> the short names of its parameters
        for layer in self.layers:
            make = PARAMETERS.get(layer["op"], lambda a, x: {})
            try:
                shapes = make(layer["attributes"], outputs[layer["inputs"][0]].shape[1:])
                self.keys[layer["name"]] = list(shapes)
                self.weights.update({layer["name"] + "." + key: np.zeros(shape) for key, shape in shapes.items()})
                outputs[layer["name"]], _ = self._forward_layer(layer, outputs)
            except (ValueError, IndexError) as error:
                raise Different("layer {}: {}".format(layer["name"], error)) from error
        self.velocities = {name: np.zeros(array.shape) for name, array in self.weights.items()}
        assert_network(self.network, {name: array.shape[1:] for name, array in outputs.items()},
                       {name: array.shape for name, array in self.weights.items()})

    def _forward_layer(self, layer, outputs):
        forward, _ = self.operations[layer["op"]]
        inputs = [outputs[source] for source in layer["inputs"]]
        return forward(self.attributes[layer["name"]], self._weights_of(layer), *inputs)

    def _weights_of(self, layer):
        """This layer's parameters by their short names."""
        return {key: self.weights[layer["name"] + "." + key] for key in self.keys[layer["name"]]}

    def _place(self, x):
        return x if self.network["vocabulary"] else x.astype(np.float64, copy=False)


def refuse_what_is_missing(task, operations):
    refuse_other_arithmetic(task)
    if task.tuning != "stock":
        raise Unsupported("tuning '{}': the reference has only stock".format(task.tuning))
    for layer in task.network["layers"]:
        if layer["op"] not in operations:
            raise Unsupported("layer {}: this runner has no operation '{}'".format(layer["name"], layer["op"]))


def refuse_other_arithmetic(task):
    if task.device != "cpu":
        raise Unsupported("device '{}': NumPy runs on the CPU alone".format(task.device))
    if task.precision != "fp32":
        raise Unsupported("precision '{}': the reference computes in float64 and judges fp32".format(task.precision))


def depends_on_parameters(layers):
    """Names of the layers whose output some parameter changes: all that the backward pass must visit."""
    trained = set()
    for layer in layers:
        if layer["parameters"] or trained.intersection(layer["inputs"]):
            trained.add(layer["name"])
    return trained


def logistic(x):
    return 0.5 * (1 + np.tanh(0.5 * x))  # 1 / (1 + exp(-x)) overflows


def pad(x, padding, value):
    """Frame each image: (B, C, H, W) -> (B, C, H + 2 padding, W + 2 padding)."""
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return np.pad(x, edges, "constant", constant_values=value) if padding else x


def unfold(x, kernel, stride):
    """Every whole window of (B, C, H, W): a view (B, C, kernel, kernel, height, width), with height and width."""
    (B, C, H, W), (b, c, h, w) = x.shape, x.strides
    height, width = (H - kernel) // stride + 1, (W - kernel) // stride + 1  # rounds down
    if height < 1 or width < 1:
        raise ValueError("windows of {} do not fit into {} x {}".format(kernel, H, W))
    shape, strides = (B, C, kernel, kernel, height, width), (b, c, h, w, h * stride, w * stride)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False), height, width


def columns_of(a, sample):
    """The windows of one framed sample (C, H, W) as columns, each group's for itself: (G, C / G k k, height width)."""
    windows, height, width = unfold(sample[None], a["kernel"], a["stride"])
    return windows.reshape(a["groups"], -1, height * width)


def fold(dcolumns, shape, a, height, width):
    """The gradient of `pad` and `unfold`: add every window's values where they came from, and leave the image of `shape`."""
    kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
    if kernel == stride == 1 and not padding:  # every window is a pixel, as in 33 of ResNet-50's 53
        return dcolumns.reshape(shape)
    dcolumns = dcolumns.reshape(shape[:2] + (kernel, kernel, height, width))
    framed = [max(2 * padding + size, stride * (windows - 1) + kernel) for size, windows in zip(shape[2:], (height, width))]
    dx = np.zeros(shape[:2] + tuple(framed))
    for row in range(kernel):
        for column in range(kernel):
            dx[:, :, row:row + stride * height:stride, column:column + stride * width:stride] += dcolumns[:, :, row, column]
    return dx[:, :, padding:padding + shape[2], padding:padding + shape[3]]


def neighbours(x, size):
    """Sum over `size` channels, each in the middle of its own; zeros beyond the first and the last."""
    reach = size // 2
    framed = np.pad(x, ((0, 0), (reach, reach), (0, 0), (0, 0)), "constant")
    return sum(framed[:, first:first + x.shape[1]] for first in range(size))
