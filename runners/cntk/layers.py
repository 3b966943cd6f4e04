"""The network's layers in CNTK, and how it stores their parameters. Python 3.5 syntax.

Images are C H W, dense kernels [in, out], LSTM gates side by side in the order i g f o. The
embedding is `C.gather` and not `C.layers.Embedding`: the gradient of the latter is sparse, and
momentum_sgd then leaves out the momentum of every word that is not in the batch (CNTK's issue
2411), which is another optimiser.
"""

import cntk as C
import numpy as np

from runners import protocol
from runners.cntk import transformers

CANONICAL_NAMES = {
    "dense": {"W": "weight", "b": "bias"},
    "linear": {"W": "weight"},
    "conv2d": {"W": "weight", "b": "bias"},
    "batch_norm": {"scale": "scale", "bias": "shift"},
    "embedding": {"E": "weight"},
    "lstm": {"W": "weight_input", "H": "weight_hidden", "b": "bias"},
}
# i g f o of CNTK's cell (cntk/layers/blocks.py) to i f g o, and back.
EXCHANGE = [0, 2, 1, 3]


def build(task, source, seed):
    """Apply the layers to `source`.

    Return every output, every trained parameter, and the function of every batch norm, by name.
    """
    outputs, trained, norms = {"input": source}, {}, {}
    for number, layer in enumerate(task.network["layers"]):
        inputs = [outputs[name] for name in layer["inputs"]]
        tied = layer["attributes"].get("tied")
        apply = (transformers.tied_dense(trained[tied + ".weight"]) if tied
                 else make_layer(layer, inputs[0].shape, task, seed + number))
        if layer["op"] == "batch_norm":
            norms[layer["name"]] = apply
        outputs[layer["name"]] = apply(*inputs)
        names = CANONICAL_NAMES.get(layer["op"], {})
        for parameter in getattr(apply, "parameters", ()):
            trained[layer["name"] + "." + names.get(parameter.name, parameter.name)] = parameter
    ours = {parameter.uid for parameter in trained.values()}
    for other in outputs[layer["name"]].parameters:
        if other.uid not in ours:
            trained[other.name or other.uid] = other
    return outputs, trained, norms


def convolution(a, shape):
    own = pads_itself(a, shape)
    if a["groups"] > 1:
        made = GroupedConvolution(a, shape[0], own)
    else:
        made = C.layers.Convolution2D(window(a), a["filters"], strides=a["stride"], pad=own,
                                      bias=a["bias"])
    return made if own or not a["padding"] else Framed(made, a["padding"], 0.0)


def max_pool(a, shape):
    room = [(a["kernel"] - 2 * a["padding"] - size) % a["stride"] if a["ceil"] else 0
            for size in shape[1:]]
    own = pads_itself(a, shape) and not any(room)
    made = C.layers.MaxPooling(window(a), strides=a["stride"], pad=own)
    framed = not own and (a["padding"] or any(room))
    return Framed(made, a["padding"], -np.inf, room) if framed else made


def global_avg_pool(x):
    return C.reshape(C.layers.GlobalAveragePooling()(x), (x.shape[0],))  # (C, 1, 1) -> (C)


# Operation -> something to be called with CNTK's tensors: a function of its layers library wherever
# that has one. It is made from the attributes and the input's shape.
LAYERS = {
    # On the last axis.
    "dense": lambda a, shape: C.layers.Dense(a["units"], input_rank=1),
    "conv2d": convolution,
    "max_pool": max_pool,
    "avg_pool": lambda a, shape: C.layers.AveragePooling(window(a), strides=a["stride"]),
    "global_avg_pool": lambda a, shape: global_avg_pool,
    "relu": lambda a, shape: C.relu,
    "sigmoid": lambda a, shape: C.sigmoid,
    # In training it normalises by the batch alone: blending is off. CNTK keeps exp(-B / constant)
    # of its running statistics.
    "batch_norm": lambda a, shape: C.layers.BatchNormalization(
        map_rank=1, epsilon=a["epsilon"],
        normalization_time_constant=-a["batch"] / np.log(a["running"])),
    "flatten": lambda a, shape: lambda x: C.reshape(x, (-1,)),
    "embedding": lambda a, shape: Embedding(a["vocabulary"], a["units"]),
    "lstm": lambda a, shape: C.layers.Recurrence(C.layers.LSTM(a["units"])),
    # It divides alpha by the size.
    "lrn": lambda a, shape: lambda x: C.local_response_normalization(
        x, a["size"] // 2, 1, a["alpha"], a["beta"]),
    # (C, H, W) each.
    "concat": lambda a, shape: lambda *images: C.splice(*images, axis=0),
    "add": lambda a, shape: C.plus,
    # An end of 0 is the end of the axis.
    "subsample": lambda a, shape: lambda x: C.slice(
        x, [1, 2], [0, 0], [0, 0], strides=[a["stride"]] * 2),
    "pad_channels": lambda a, shape: lambda x: C.pad(x, [(0, a["extra"]), (0, 0), (0, 0)]),
}
LAYERS.update(transformers.LAYERS)


def make_layer(layer, input_shape, task, seed):
    attributes = dict(layer["attributes"], batch=task.batch)
    if layer["op"] == "dropout":
        return C.layers.Dropout(attributes["rate"], seed=seed)
    return protocol.lowered(LAYERS, layer)(attributes, input_shape)


def window(a):
    return a["kernel"], a["kernel"]


def pads_itself(a, input_shape):
    """Say whether CNTK's padding is ours: it centres the first window on the first pixel.

    For odd kernels that is (kernel - 1) / 2 a side. CNTK refuses kernels larger than the image,
    even where they fit the frame.
    """
    return a["kernel"] == 2 * a["padding"] + 1 and a["kernel"] <= min(input_shape[1:])


class Framed:
    """A convolution or pooling of images in a frame, with `room` below and to the right of it."""

    def __init__(self, layer, padding, value, room=(0, 0)):
        self.layer = layer
        self.parameters = layer.parameters
        self.pattern = [(0, 0)] + [(padding, padding + more) for more in room]
        self.value = value

    def __call__(self, x):
        return self.layer(C.pad(x, self.pattern, constant_value=self.value))


class GroupedConvolution:
    """CNTK's layers library refuses groups, and names this operation for them."""

    def __init__(self, a, channels, own):
        shape = (a["filters"], channels // a["groups"]) + window(a)
        self.parameters = [C.Parameter(shape, init=C.glorot_uniform(), name="W")]
        if a["bias"]:
            self.parameters.append(C.Parameter((a["filters"], 1, 1), name="b"))
        self.options = {"strides": (a["stride"], a["stride"]), "groups": a["groups"],
                        "auto_padding": [False, own, own]}

    def __call__(self, x):
        y = C.convolution(self.parameters[0], x, **self.options)
        return y + self.parameters[1] if len(self.parameters) > 1 else y


class Embedding:
    """Rows of a table; the gradient of `gather` is dense, so all words' momentum decays."""

    def __init__(self, vocabulary, units):
        self.parameters = [C.Parameter((vocabulary, units), init=C.glorot_uniform(), name="E")]

    def __call__(self, words):
        return C.gather(self.parameters[0], words)


def output_shapes(network, outputs):
    """Shapes of outputs without the batch; a sequence's words are an axis without length."""
    words = tuple(network["input_shape"]) if network["vocabulary"] else ()
    return {name: (words if len(output.dynamic_axes) == 2 else ()) + tuple(output.shape)
            for name, output in outputs.items()}


def canonical_shape(shape, op):
    if op in ("dense", "linear", "lstm"):
        return tuple(reversed(shape))
    # A convolution's bias is (C, 1, 1).
    return tuple(shape[:1]) if len(shape) == 3 else tuple(shape)


def to_cntk(array, shape, op):
    array = exchange_gates(array) if op == "lstm" else array
    array = array.T if op in ("dense", "linear", "lstm") else array
    return np.ascontiguousarray(array, np.float32).reshape(shape)


def to_canonical(array, op):
    shape = canonical_shape(array.shape, op)
    array = array.T if op in ("dense", "linear", "lstm") else array
    array = exchange_gates(array) if op == "lstm" else array
    return np.ascontiguousarray(array, np.float32).reshape(shape)


def exchange_gates(array):
    """Exchange the second and third quarter of the first axis, which is four gates."""
    return array.reshape(4, -1)[EXCHANGE].reshape(array.shape)
