"""The network as a Keras model on any backend, and what turns canonical arrays into Keras's.

Keras keeps images N H W C, kernels [in, out] and [kh, kw, in, out], gates i f c o (c is the
canonical g). `flatten` stays Keras's own, so the dense layer behind it reads its features in the
order H W C: its weights are permuted at the border (`layouts`), not its input in every step.
"""

import keras
import numpy as np

from runners import protocol
from runners.arrays import all_transposed
from runners.keras import transformers

POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
# Rank -> Keras's order of the axes of vectors, [out, in] and [out, in, kh, kw].
KERAS_ORDER = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
CANONICAL_NAMES = {
    "kernel": "weight", "bias": "bias", "gamma": "scale", "beta": "shift", "embeddings": "weight",
    "lstm_cell/kernel": "weight_input", "lstm_cell/recurrent_kernel": "weight_hidden",
    "lstm_cell/bias": "bias",
}


def build_model(task, lstm, lrn=None):
    """Return the Keras model and its layers' canonical output shapes, without the batch.

    `lstm` holds options of Keras's LSTM. `lrn` is the backend's local response normalisation, as
    TensorFlow has it: Keras itself has none.
    """
    network = task.network
    # Each layer gets the policy, because a global one would outlive this task.
    policy = keras.DTypePolicy(POLICIES[task.precision])
    batch_shape = (task.batch,) + _image_last(network["input_shape"])
    kind = "int64" if network["vocabulary"] else "float32"
    tensors = {"input": keras.Input(batch_shape=batch_shape, dtype=kind, name="input")}
    # Keras's layers of embeddings, by name.
    tables = {}
    for number, layer in enumerate(network["layers"]):
        inputs = [tensors[source] for source in layer["inputs"]]
        options = {"name": layer["name"], "dtype": policy}
        attributes = dict(layer["attributes"], seed=task.seed + number, lstm=lstm, lrn=lrn,
                          tables=tables)
        tensors[layer["name"]] = protocol.lowered(LAYERS, layer)(attributes, options, *inputs)
    outputs = {name: _image_first(tensor.shape[1:]) for name, tensor in tensors.items()}
    return keras.Model(tensors["input"], tensors[network["layers"][-1]["name"]]), outputs


def conv(a, options, x):
    kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
    # Elsewhere Keras's "same" may pad one side more than the other.
    same = stride == 1 and kernel == 2 * padding + 1
    if padding and not same:
        x = keras.layers.ZeroPadding2D(padding, name=options["name"] + "_padding",
                                       dtype=options["dtype"])(x)
    return keras.layers.Conv2D(a["filters"], kernel, strides=stride,
                               padding="same" if same else "valid", groups=a["groups"],
                               use_bias=a["bias"], **options)(x)


def max_pool(a, options, x):
    padding, room = a["padding"], [0, 0]
    # Room for a last window that begins in the image.
    if a["ceil"]:
        room = [(a["kernel"] - 2 * padding - size) % a["stride"] for size in x.shape[1:3]]
    if padding or any(room):
        sides = [[padding, padding + more] for more in room]
        x = keras.ops.pad(x, [[0, 0], *sides, [0, 0]], constant_values=-np.inf)
    return keras.layers.MaxPooling2D(a["kernel"], strides=a["stride"], **options)(x)


def embedding(a, options, x):
    table = keras.layers.Embedding(a["vocabulary"], a["units"], **options)
    a["tables"][options["name"]] = table
    return table(x)


def local_response_norm(a, options, x):
    if a["lrn"] is None:
        raise protocol.Unsupported(f"layer {options['name']}: Keras 3 has no local response "
                                   "normalisation; TensorFlow's own is not Keras's")
    return LocalResponseNorm(a, **options)(x)


class LocalResponseNorm(keras.layers.Layer):
    """The backend's own operation; its alpha is not divided by the size."""

    def __init__(self, a, **options):
        super().__init__(**options)
        self.lrn = a["lrn"]
        self.options = {"depth_radius": a["size"] // 2, "bias": 1.0,
                        "alpha": a["alpha"] / a["size"], "beta": a["beta"]}

    def call(self, x):
        return self.lrn(x, **self.options)


# Operation -> tensor, from the attributes, the options of every layer (name and precision) and the
# input tensors, images (B, H, W, C). `build_model` adds `seed`, `lstm`, `lrn` and `tables` to the
# attributes.
LAYERS = {
    "dense": lambda a, options, x: keras.layers.Dense(a["units"], **options)(x),
    "conv2d": conv,
    "max_pool": max_pool,
    "avg_pool": lambda a, options, x: keras.layers.AveragePooling2D(
        a["kernel"], strides=a["stride"], **options)(x),
    "global_avg_pool": lambda a, options, x: keras.layers.GlobalAveragePooling2D(**options)(x),
    "relu": lambda a, options, x: keras.layers.Activation("relu", **options)(x),
    "sigmoid": lambda a, options, x: keras.layers.Activation("sigmoid", **options)(x),
    "dropout": lambda a, options, x: keras.layers.Dropout(
        a["rate"], seed=a["seed"], **options)(x),
    "batch_norm": lambda a, options, x: keras.layers.BatchNormalization(
        momentum=a["running"], epsilon=a["epsilon"], **options)(x),
    "lrn": local_response_norm,
    "concat": lambda a, options, *images: keras.layers.Concatenate(**options)(list(images)),
    "add": lambda a, options, *both: keras.layers.Add(**options)(list(both)),
    "flatten": lambda a, options, x: keras.layers.Flatten(**options)(x),
    "subsample": lambda a, options, x: x[:, ::a["stride"], ::a["stride"], :],
    "pad_channels": lambda a, options, x: keras.ops.pad(
        x, [[0, 0], [0, 0], [0, 0], [0, a["extra"]]]),
    "embedding": embedding,
    "lstm": lambda a, options, x: keras.layers.LSTM(
        a["units"], return_sequences=True, **a["lstm"], **options)(x),
    **transformers.LAYERS,
}


def layouts(network):
    """Map each parameter to its canonical shape, its axes and Keras's order of those axes.

    The axes are the canonical shape; where features are a flattened image, they are C, H and W.
    """
    layouts, shapes = {}, {"input": tuple(network["input_shape"])}
    # Layer -> the C H W of the image whose flattened features it outputs, in Keras's order.
    flattened = {"input": ()}
    for layer in network["layers"]:
        name, op = layer["name"], layer["op"]
        images = {flattened[source] for source in layer["inputs"]}
        if len(images) > 1:
            raise protocol.Unsupported(
                f"layer {name}: adds features in the orders H W C and C H W")
        image = images.pop()
        for parameter, shape in layer["parameters"].items():
            turned = op == "dense" and parameter == "weight" and image
            axes = (shape[0], *image) if turned else tuple(shape)
            table = op in ("embedding", "positions")
            order = tuple(range(len(axes))) if table else KERAS_ORDER[len(axes)]
            layouts[f"{name}.{parameter}"] = tuple(shape), axes, order
        shapes[name] = tuple(layer["output_shape"])
        flattened[name] = () if op == "dense" else image
        if op == "flatten":
            flattened[name] = shapes[layer["inputs"][0]]
    if flattened[name]:
        raise protocol.Unsupported(
            f"layer {name}: the classes are a flattened image, in the order H W C")
    return layouts


def to_keras(arrays, variables, layouts):
    """Return canonical arrays by name in the order and the shapes of Keras's variables."""
    turned = all_transposed({name: (array.reshape(layouts[name][1]), layouts[name][2])
                             for name, array in arrays.items()})
    return {name: array.reshape(variables[name].shape) for name, array in turned.items()}


def to_canonical(arrays, layouts):
    """Return Keras's arrays by name in canonical layouts, as new float32 arrays."""
    stored = {name: (array.reshape([layouts[name][1][axis] for axis in layouts[name][2]]),
                     np.argsort(layouts[name][2])) for name, array in arrays.items()}
    return {name: array.reshape(layouts[name][0])
            for name, array in all_transposed(stored).items()}


def full_name(variable):
    """`lstm1/lstm_cell/kernel` -> `lstm1.weight_input`; `assert_network` refuses other names."""
    layer, _, parameter = variable.path.partition("/")
    return f"{layer}.{CANONICAL_NAMES.get(parameter, parameter)}"


def canonical_shape(variable):
    shape = tuple(variable.shape)
    order = (3, 2, 0, 1) if len(shape) == 4 else (1, 0)
    if len(shape) == 1 or variable.path.endswith("embeddings"):
        return shape
    return tuple(shape[axis] for axis in order)


def _image_last(shape):
    return tuple(shape) if len(shape) != 3 else (shape[1], shape[2], shape[0])


def _image_first(shape):
    return tuple(shape) if len(shape) != 3 else (shape[2], shape[0], shape[1])
