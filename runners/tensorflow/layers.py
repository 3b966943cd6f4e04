"""The network as a Keras model, and how Keras keeps its weights: what stands between canonical arrays and Keras's.

Keras keeps images N H W C, kernels [in, out] and [kh, kw, in, out], gates i f c o (c is the canonical g). `flatten` stays Keras's
own, so the dense layer behind it reads its features in the order H W C: its weights are permuted at the border (`layouts`) instead
of its input in every step.
"""

import keras
import numpy as np
import tensorflow as tf

from runners import protocol

POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
KERAS_ORDER = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}  # of the axes of vectors, [out, in] and [out, in, kh, kw]
CANONICAL_NAMES = {
    "kernel": "weight", "bias": "bias", "gamma": "scale", "beta": "shift", "embeddings": "weight",
    "lstm_cell/kernel": "weight_input", "lstm_cell/recurrent_kernel": "weight_hidden", "lstm_cell/bias": "bias",
}


def build_model(task):
    """Return the Keras model and the canonical output shape of each of its layers, without the batch."""
    network = task.network
    policy = keras.DTypePolicy(POLICIES[task.precision])  # by layer: a global policy would outlive this task
    batch_shape = (task.batch,) + _image_last(network["input_shape"])
    tensors = {"input": keras.Input(batch_shape=batch_shape, dtype="int64" if network["vocabulary"] else "float32", name="input")}
    for number, layer in enumerate(network["layers"]):
        inputs = [tensors[source] for source in layer["inputs"]]
        if layer["op"] == "dropout" and not task.dropout:
            tensors[layer["name"]] = inputs[0]
        else:
            tensors[layer["name"]] = _lower(layer, inputs, policy, task.seed + number)
    outputs = {name: _image_first(tensor.shape[1:]) for name, tensor in tensors.items()}
    return keras.Model(tensors["input"], tensors[network["layers"][-1]["name"]]), outputs


def _lower(layer, inputs, policy, seed):
    """Apply one layer of the network to Keras tensors, images N H W C."""
    op, attributes, x = layer["op"], layer["attributes"], inputs[0]
    options = {"name": layer["name"], "dtype": policy}
    layers = keras.layers
    if op == "dense" and len(x.shape) < 4:  # on an image, Keras's last axis is C and the network's is W
        return layers.Dense(attributes["units"], **options)(x)
    if op == "conv2d":
        kernel, stride, padding = attributes["kernel"], attributes["stride"], attributes["padding"]
        same = stride == 1 and kernel == 2 * padding + 1  # elsewhere Keras's "same" may pad one side more than the other
        if padding and not same:
            x = layers.ZeroPadding2D(padding, name=layer["name"] + "_padding", dtype=policy)(x)
        return layers.Conv2D(attributes["filters"], kernel, strides=stride, padding="same" if same else "valid",
                             groups=attributes["groups"], use_bias=attributes["bias"], **options)(x)
    if op == "max_pool":
        padding, room = attributes["padding"], [0, 0]
        if attributes["ceil"]:  # room for a last window that begins in the image
            room = [(attributes["kernel"] - 2 * padding - size) % attributes["stride"] for size in x.shape[1:3]]
        if padding or any(room):
            sides = [[padding, padding + more] for more in room]
            x = keras.ops.pad(x, [[0, 0], *sides, [0, 0]], constant_values=-np.inf)
        return layers.MaxPooling2D(attributes["kernel"], strides=attributes["stride"], **options)(x)
    if op == "avg_pool":
        return layers.AveragePooling2D(attributes["kernel"], strides=attributes["stride"], **options)(x)
    if op == "global_avg_pool":
        return layers.GlobalAveragePooling2D(**options)(x)
    if op in ("relu", "sigmoid"):
        return layers.Activation(op, **options)(x)
    if op == "dropout":
        return layers.Dropout(attributes["rate"], seed=seed, **options)(x)
    if op == "batch_norm":
        return layers.BatchNormalization(epsilon=attributes["epsilon"], **options)(x)
    if op == "lrn":
        return LocalResponseNorm(attributes, **options)(x)
    if op == "concat":
        return layers.Concatenate(**options)(inputs)  # on Keras's last axis, C
    if op == "add":
        return layers.Add(**options)(inputs)
    if op == "flatten":
        return layers.Flatten(**options)(x)
    if op == "subsample":
        return x[:, ::attributes["stride"], ::attributes["stride"], :]
    if op == "pad_channels":
        return keras.ops.pad(x, [[0, 0], [0, 0], [0, 0], [0, attributes["extra"]]])
    if op == "embedding":
        return layers.Embedding(attributes["vocabulary"], attributes["units"], **options)(x)
    if op == "lstm":  # "auto", Keras's default, takes cuDNN's kernel on a GPU (its second bias stays zero there)
        # In bfloat16 it leaves gradients unwritten (TensorFlow 2.21, cuDNN 9.19, H200): all but the last layer learn nothing.
        kernel = False if policy.compute_dtype == "bfloat16" else "auto"
        return layers.LSTM(attributes["units"], return_sequences=True, use_cudnn=kernel, **options)(x)
    raise protocol.Unsupported(f"layer {layer['name']}: {op} on {_image_first(x.shape[1:])} has no lowering in this runner")


class LocalResponseNorm(keras.layers.Layer):
    """TensorFlow's own operation, which Keras has no layer for; its alpha is not divided by the size."""

    def __init__(self, attributes, **options):
        super().__init__(**options)
        size = attributes["size"]
        self.options = {"depth_radius": size // 2, "bias": 1.0, "alpha": attributes["alpha"] / size, "beta": attributes["beta"]}

    def call(self, x):
        return tf.nn.local_response_normalization(x, **self.options)


def layouts(network):
    """Map each parameter to (canonical shape, that shape with a flattened C H W taken apart, Keras's order of those axes)."""
    layouts, shapes = {}, {"input": tuple(network["input_shape"])}
    flattened = {"input": ()}  # the C H W whose flattening a layer's features are, in Keras's order
    for layer in network["layers"]:
        name, op = layer["name"], layer["op"]
        images = {flattened[source] for source in layer["inputs"]}
        if len(images) > 1:
            raise protocol.Unsupported(f"layer {name}: adds features in the orders H W C and C H W")
        image = images.pop()
        for parameter, shape in layer["parameters"].items():
            axes = (shape[0], *image) if op == "dense" and parameter == "weight" and image else tuple(shape)
            order = tuple(range(len(axes))) if op == "embedding" else KERAS_ORDER[len(axes)]
            layouts[f"{name}.{parameter}"] = tuple(shape), axes, order
        shapes[name] = tuple(layer["output_shape"])
        flattened[name] = shapes[layer["inputs"][0]] if op == "flatten" else () if op == "dense" else image
    if flattened[name]:
        raise protocol.Unsupported(f"layer {name}: the classes are a flattened image, in the order H W C")
    return layouts


def to_keras(array, shape, layout):
    _, axes, order = layout
    return array.reshape(axes).transpose(order).reshape(shape)


def to_canonical(array, layout):
    shape, axes, order = layout
    return array.reshape([axes[axis] for axis in order]).transpose(np.argsort(order)).reshape(shape)


def full_name(variable):
    """`lstm1/lstm_cell/kernel` -> `lstm1.weight_input`; names that the network has not are for `assert_network` to refuse."""
    layer, _, parameter = variable.path.partition("/")
    return f"{layer}.{CANONICAL_NAMES.get(parameter, parameter)}"


def canonical_shape(variable):
    shape = tuple(variable.shape)
    order = (3, 2, 0, 1) if len(shape) == 4 else (1, 0)
    return shape if len(shape) == 1 or variable.path.endswith("embeddings") else tuple(shape[axis] for axis in order)


def _image_last(shape):
    return tuple(shape) if len(shape) != 3 else (shape[1], shape[2], shape[0])


def _image_first(shape):
    return tuple(shape) if len(shape) != 3 else (shape[2], shape[0], shape[1])
