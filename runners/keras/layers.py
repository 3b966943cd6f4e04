"""The network as a Keras model on any backend, and what turns canonical arrays into Keras's.

Keras keeps images N H W C, kernels [in, out] and [kh, kw, in, out], gates i f c o (c is the
canonical g). `flatten` stays Keras's own, so the dense layer behind it reads its features in the
order H W C: its weights are permuted at the border (`layouts`), not its input in every step.
"""

import keras
import numpy as np

from runners import protocol
from runners.arrays import transposed
from runners.keras import transformers

POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
# Of the axes of vectors, [out, in] and [out, in, kh, kw].
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
    # By layer: a global policy would outlive this task.
    policy = keras.DTypePolicy(POLICIES[task.precision])
    batch_shape = (task.batch,) + _image_last(network["input_shape"])
    kind = "int64" if network["vocabulary"] else "float32"
    tensors = {"input": keras.Input(batch_shape=batch_shape, dtype=kind, name="input")}
    # Keras's layers of embeddings, by name.
    tables = {}
    for number, layer in enumerate(network["layers"]):
        inputs = [tensors[source] for source in layer["inputs"]]
        if layer["op"] == "embedding":
            a = layer["attributes"]
            tables[layer["name"]] = keras.layers.Embedding(a["vocabulary"], a["units"],
                                                           name=layer["name"], dtype=policy)
            tensors[layer["name"]] = tables[layer["name"]](inputs[0])
            continue
        options = {"name": layer["name"], "dtype": policy}
        if layer["op"] == "lrn":
            if lrn is None:
                raise protocol.Unsupported(f"layer {layer['name']}: Keras 3 has no local response "
                                           "normalisation; TensorFlow's own is not Keras's")
            tensors[layer["name"]] = LocalResponseNorm(layer["attributes"], lrn,
                                                       **options)(inputs[0])
            continue
        found = transformers.lower(layer, inputs, options, tables)
        tensors[layer["name"]] = found if found is not None else _lower(
            layer, inputs, policy, task.seed + number, lstm)
    outputs = {name: _image_first(tensor.shape[1:]) for name, tensor in tensors.items()}
    return keras.Model(tensors["input"], tensors[network["layers"][-1]["name"]]), outputs


def _lower(layer, inputs, policy, seed, lstm):
    """Apply one layer of the network to Keras tensors, images N H W C."""
    op, a, x = layer["op"], layer["attributes"], inputs[0]
    options = {"name": layer["name"], "dtype": policy}
    layers = keras.layers
    # On an image, Keras's last axis is C and the network's is W.
    if op == "dense" and len(x.shape) < 4:
        return layers.Dense(a["units"], **options)(x)
    if op == "conv2d":
        kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
        # Elsewhere Keras's "same" may pad one side more than the other.
        same = stride == 1 and kernel == 2 * padding + 1
        if padding and not same:
            x = layers.ZeroPadding2D(padding, name=layer["name"] + "_padding", dtype=policy)(x)
        return layers.Conv2D(a["filters"], kernel, strides=stride,
                             padding="same" if same else "valid", groups=a["groups"],
                             use_bias=a["bias"], **options)(x)
    if op == "max_pool":
        padding, room = a["padding"], [0, 0]
        # Room for a last window that begins in the image.
        if a["ceil"]:
            room = [(a["kernel"] - 2 * padding - size) % a["stride"] for size in x.shape[1:3]]
        if padding or any(room):
            sides = [[padding, padding + more] for more in room]
            x = keras.ops.pad(x, [[0, 0], *sides, [0, 0]], constant_values=-np.inf)
        return layers.MaxPooling2D(a["kernel"], strides=a["stride"], **options)(x)
    if op == "avg_pool":
        return layers.AveragePooling2D(a["kernel"], strides=a["stride"], **options)(x)
    if op == "global_avg_pool":
        return layers.GlobalAveragePooling2D(**options)(x)
    if op in ("relu", "sigmoid"):
        return layers.Activation(op, **options)(x)
    if op == "dropout":
        return layers.Dropout(a["rate"], seed=seed, **options)(x)
    if op == "batch_norm":
        return layers.BatchNormalization(momentum=a["running"], epsilon=a["epsilon"],
                                         **options)(x)
    if op == "concat":
        return layers.Concatenate(**options)(inputs)
    if op == "add":
        return layers.Add(**options)(inputs)
    if op == "flatten":
        return layers.Flatten(**options)(x)
    if op == "subsample":
        return x[:, ::a["stride"], ::a["stride"], :]
    if op == "pad_channels":
        return keras.ops.pad(x, [[0, 0], [0, 0], [0, 0], [0, a["extra"]]])
    if op == "lstm":
        return layers.LSTM(a["units"], return_sequences=True, **lstm, **options)(x)
    raise protocol.Unsupported(f"layer {layer['name']}: {op} on {_image_first(x.shape[1:])} has no "
                               "lowering in this runner")


class LocalResponseNorm(keras.layers.Layer):
    """The backend's own operation; its alpha is not divided by the size."""

    def __init__(self, a, lrn, **options):
        super().__init__(**options)
        self.lrn = lrn
        self.options = {"depth_radius": a["size"] // 2, "bias": 1.0,
                        "alpha": a["alpha"] / a["size"], "beta": a["beta"]}

    def call(self, x):
        return self.lrn(x, **self.options)


def layouts(network):
    """Map each parameter to its canonical shape, its axes and Keras's order of those.

    Its axes are that shape with a flattened C H W taken apart.
    """
    layouts, shapes = {}, {"input": tuple(network["input_shape"])}
    # The C H W whose flattening a layer's features are, in Keras's order.
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


def to_keras(array, shape, layout):
    _, axes, order = layout
    return transposed(array.reshape(axes), order).reshape(shape)


def to_canonical(array, layout):
    shape, axes, order = layout
    stored = array.reshape([axes[axis] for axis in order])
    return transposed(stored, np.argsort(order)).reshape(shape)


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
