"""Static INT8: what is quantised, with which scales, and what the quantised network computes.

Activations are uint8 with one scale and zero point a tensor, weights int8 with one scale an output
channel, biases int32. A batch norm behind a convolution is folded into it first. A tied head has
integers of its own, and its embedding stays in float32. The engines' ONNX file and the float64
reference both follow this file. Python 3.6 syntax and NumPy only.
"""

import numpy as np

INPUT = "input"
# Ends the name of a tensor's scale and zero point in the file of weights.
QUANTISED = "quantised"
PRODUCTS = ("conv2d", "dense", "linear", "tied_dense")
# A step reads what the last one wrote, and no engine here has a static integer kernel for that.
# All other layers with weights stay in float32.
LEFT_OUT = ("lstm",)
# These operations move, select or repeat numbers, so their output keeps the scale.
PASSING = ("max_pool", "flatten", "dropout", "subsample", "pad_channels", "tokens", "first_token")
LEVELS, MIDDLE, WEIGHT_LEVEL = 255, 128, 127
# If an addition's first summand is a convolution's sum, some engines store both summands as uint8
# ("both_stored") and others add before they store (this). The recipes say which.
FIRST_ADDED = "first_added"
# The largest bias: far from the end of int32, because sums of products are added to it.
BIAS_LEVEL = 2 ** 30


def refusal(network):
    """Return why a network (its JSON form) has no INT8 form, or ""."""
    for layer in network["layers"]:
        if layer["op"] in LEFT_OUT:
            return "layer {}: '{}' has no static INT8 form here; {} have".format(
                layer["name"], layer["op"], ", ".join(PRODUCTS))
    return ""


def arithmetic(network, in_float):
    """Name the arithmetic of an engine that computes `in_float` products in floating point."""
    if not in_float:
        return "int8"
    return f"float32 in {in_float} of {len(products(network))} products"


def products(network):
    """List the layers whose products INT8 computes in integers."""
    return [layer for layer in network["layers"] if layer["op"] in PRODUCTS]


def folded(network):
    """Map each batch norm that is its convolution's only reader to that convolution's name."""
    readers = readers_of(network)
    convolutions = {layer["name"] for layer in network["layers"] if layer["op"] == "conv2d"}
    return {layer["name"]: layer["inputs"][0] for layer in network["layers"]
            if layer["op"] == "batch_norm" and layer["inputs"][0] in convolutions
            and len(readers[layer["inputs"][0]]) == 1}


def tensors(network):
    """Map each quantised tensor to the one whose scale it has, in the network's order.

    Images and all that a product reads are quantised. A tensor that only the next operation of a
    fused kernel reads is not.
    """
    readers, norms = readers_of(network), folded(network)
    ops = {layer["name"]: layer["op"] for layer in network["layers"]}
    last = network["layers"][-1]["name"]
    found = {}

    def is_read(name):
        return any(ops[reader] in PRODUCTS or (ops[reader] in PASSING and is_read(reader))
                   for reader in readers[name])

    def is_inside(name):
        behind = readers[name]
        fuses = ops.get(name) in PRODUCTS + ("add", "batch_norm")
        return len(behind) == 1 and (behind[0] in norms or (fuses and ops[behind[0]] == "relu"))

    first = {"name": INPUT, "op": "", "inputs": [], "output_shape": network["input_shape"]}
    for layer in ([] if network["vocabulary"] else [first]) + network["layers"]:
        name = layer["name"]
        if name == last or is_inside(name):
            continue
        if layer["op"] in PASSING:
            if layer["inputs"][0] in found:
                found[name] = found[layer["inputs"][0]]
        elif len(layer["output_shape"]) == 3 or is_read(name):
            found[name] = name
    return found


def readers_of(network):
    """Map each tensor's name to the names of the layers that read it."""
    readers = {layer["name"]: [] for layer in network["layers"]}
    readers[INPUT] = []
    for layer in network["layers"]:
        for source in layer["inputs"]:
            readers[source].append(layer["name"])
    return readers


def scale_of(low, high):
    """Return the float32 scale and the zero point (0 to 255) of a tensor in [low, high].

    Zero is exact, because padding and ReLU need it. With negative numbers zero lies in the middle:
    engines move other zero points through additions and then round in other places.
    """
    low, high = float(low), float(high)
    if low >= 0:
        return np.float32(high / LEVELS or 1), 0
    return np.float32(max(-low / MIDDLE, high / (LEVELS - MIDDLE))), MIDDLE


def scales(network, arrays):
    """Return by name the scale and zero point of each tensor that is quantised in this file."""
    found = {}
    for name, owner in tensors(network).items():
        if owner + "." + QUANTISED in arrays:
            scale, zero = arrays[owner + "." + QUANTISED]
            found[name] = np.float32(scale), int(zero)
    return found


def added_first(network):
    """Return the first summands that are sums of a convolution which no other layer reads."""
    readers, norms = readers_of(network), folded(network)
    sums = set(norms).union(layer["name"] for layer in network["layers"]
                            if layer["op"] == "conv2d")
    found = set()
    for layer in network["layers"]:
        if layer["op"] == "add":
            found.update([name for name in layer["inputs"]
                          if name in sums and readers[name] == [layer["name"]]][:1])
    return found


def quantised_arrays(network, ranges, summands):
    """Return the arrays to add to a file of weights: a scale and a zero point for each tensor.

    `ranges` holds the ends of each tensor by name. `FIRST_ADDED` explains `summands`.
    """
    left = added_first(network) if summands == FIRST_ADDED else ()
    return {name + "." + QUANTISED: np.array(scale_of(*ranges[name]), np.float32)
            for name, owner in tensors(network).items() if name == owner and name not in left}


def names_of(layer):
    """Map each parameter that a product reads to its full name: a tied head reads a table."""
    if "tied" in layer["attributes"]:
        return {"weight": layer["attributes"]["tied"] + ".weight"}
    return {key: layer["name"] + "." + key for key in layer["parameters"]}


class Product:
    """A product's integers: `weight` int8 [out, ...] with `scales` [out], `bias` int32 or None."""

    def __init__(self, layer, arrays, norm, source_scale):
        """`norm` is the batch norm (JSON form) that is folded in, or None."""
        weight, bias = folded_weights(layer, arrays, norm)
        rows = weight.reshape(len(weight), -1)
        largest = np.abs(rows).max(axis=1) / WEIGHT_LEVEL
        if bias is not None:
            # A channel of tiny weights and a large bias: the bias must fit too.
            largest = np.maximum(largest, np.abs(bias) / (float(source_scale) * BIAS_LEVEL))
        self.scales = np.where(largest > 0, largest, 1).astype(np.float32)
        steps = self.scales.astype(np.float64)
        self.weight = np.clip(np.rint(rows / steps[:, None]), -WEIGHT_LEVEL, WEIGHT_LEVEL) \
            .astype(np.int8).reshape(weight.shape)
        self.bias_scales = self.scales * np.float32(source_scale)
        self.bias = None if bias is None else \
            np.rint(bias / self.bias_scales.astype(np.float64)).astype(np.int32)

    def dequantised(self):
        """Return what the integers stand for, in float64: the weight, and the bias or None."""
        shape = (-1,) + (1,) * (self.weight.ndim - 1)
        weight = self.weight * self.scales.astype(np.float64).reshape(shape)
        if self.bias is None:
            return weight, None
        return weight, self.bias * self.bias_scales.astype(np.float64)


def folded_weights(layer, arrays, norm):
    """Return a product's float64 weight and bias (None without one), a batch norm folded in."""
    own = {key: arrays[name].astype(np.float64) for key, name in names_of(layer).items()}
    weight, bias = own["weight"], own.get("bias")
    if norm is None:
        return weight, bias
    scale, shift, mean, variance = (arrays[norm["name"] + "." + key].astype(np.float64)
                                    for key in ("scale", "shift", "mean", "variance"))
    factor = scale / np.sqrt(variance + norm["attributes"]["epsilon"])
    before = 0.0 if bias is None else bias
    return weight * factor[:, None, None, None], shift + (before - mean) * factor


def quantised_products(network, arrays):
    """Return the `Product` of each product by its layer's name."""
    of_norm = {layer["name"]: layer for layer in network["layers"]}
    norms = {product: of_norm[norm] for norm, product in folded(network).items()}
    known = scales(network, arrays)
    return {layer["name"]: Product(layer, arrays, norms.get(layer["name"]),
                                   known[layer["inputs"][0]][0])
            for layer in products(network)}


def rounded_to_levels(x, scale, zero, moves=False):
    """Return what a float64 array is after it was stored as uint8.

    With `moves` the number of each sample that lies nearest to a tie is rounded the other way, as
    an engine that computes in float32 may round it.
    """
    exact = x / float(scale) + zero
    levels = np.rint(exact)
    if moves:
        rows = levels.reshape(len(x), -1)
        for row, values in enumerate(exact.reshape(len(x), -1)):
            # All numbers beyond an end have the same level.
            inside = (values > 0) & (values < LEVELS)
            place = np.argmax(np.where(inside, np.abs(values - rows[row]), -1))
            rows[row, place] += np.sign(values[place] - rows[row, place])
    return (np.clip(levels, 0, LEVELS) - zero) * float(scale)
