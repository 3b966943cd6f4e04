"""How much work a network is: multiply-adds, bytes and matrix products of one training step.

They are counted from the layers, because profilers count what one framework happened to run.
Element-wise work is left out of the multiply-adds, as the field does. A layer whose input depends
on no parameter needs no gradient of its input: its backward pass costs one product, not two.
"""

import math
from dataclasses import dataclass, replace

from networks.description import Layer, Network, Shape

FLOAT_BYTES = 4
# The operations that read matrix products' operands and write their results.
PRODUCTS = ("dense", "conv2d", "lstm", "attention", "tied_dense", "linear",
            "grouped_attention")


@dataclass(frozen=True)
class MatrixProduct:
    """`count` products C[m, n] = op(A)[m, k] op(B)[k, n] of row-major matrices.

    "NT" means that B is stored transposed. A convolution counts as the product of its unfolded
    input (B x H x W rows) with its weights, one for each group. `phase` is forward, backward_data
    or backward_weights.
    """

    layer: str
    op: str
    phase: str
    m: int
    n: int
    k: int
    transposition: str
    count: int = 1

    @property
    def multiply_adds(self) -> int:
        return self.count * self.m * self.n * self.k


def matrix_products(network: Network, batch: int) -> list[MatrixProduct]:
    """List the matrix products of forward and backward for one mini-batch of `batch` samples."""
    trained = _depends_on_parameters(network)
    products = []
    for layer in network.layers:
        input_gradient = any(trained[source] for source in layer.inputs)
        products += _products_of(layer, network.shape_of(layer.inputs[0]), batch, input_gradient)
    return products


@dataclass(frozen=True)
class Stage:
    """What a layer's forward, backward or update computes and moves between chip and memory."""

    layer: str
    op: str
    phase: str
    flops: int
    bytes: int


def stages(network: Network, batch: int, element_bytes: int = FLOAT_BYTES) -> list[Stage]:
    """List the least that a training step of one mini-batch computes and moves, stage by stage.

    Activations and the weights that products read have `element_bytes`; the update is fp32. A layer
    with weights reads its input and weights and writes its output. Backward it reads its input,
    weights and the gradient of its output once, and writes the other gradients. All else (ReLU,
    norms, pooling, additions) moves nothing, because it can be fused.
    """
    flops: dict[tuple[str, str], int] = {}
    for product in matrix_products(network, batch):
        key = product.layer, "forward" if product.phase == "forward" else "backward"
        flops[key] = flops.get(key, 0) + 2 * product.multiply_adds
    trained = _depends_on_parameters(network)
    found = []
    for layer in network.layers:
        read = sum(math.prod(network.shape_of(source)) for source in layer.inputs) * batch
        written, weights = math.prod(layer.output_shape) * batch, layer.parameter_count
        tied = layer.attributes.get("tied")
        used = network.layer(tied).parameter_count if tied else weights
        if layer.op in PRODUCTS:
            # Whether the input's gradient is wanted.
            deeper = any(trained[source] for source in layer.inputs)
            backward = read + written + (used + read if deeper else 0)
            moved = {"forward": element_bytes * (read + used + written),
                     "backward": element_bytes * backward + FLOAT_BYTES * used}
        elif layer.op == "embedding":
            # One row a word, and a gradient of the whole table.
            moved = {"forward": FLOAT_BYTES * read + 2 * element_bytes * written,
                     "backward": element_bytes * written + FLOAT_BYTES * weights}
        else:
            moved = {}
        found += [Stage(layer.name, layer.op, phase, flops.get((layer.name, phase), 0), size)
                  for phase, size in moved.items()]
        # It reads weight, velocity and gradient, and writes weight and velocity.
        if weights:
            found.append(Stage(layer.name, layer.op, "update", 4 * weights,
                               5 * FLOAT_BYTES * weights))
    return found


def multiply_adds(network: Network) -> dict[str, tuple[int, int]]:
    """Count (forward, backward) multiply-adds of each layer for one sample."""
    counts = {layer.name: (0, 0) for layer in network.layers}
    for product in matrix_products(network, batch=1):
        forward, backward = counts[product.layer]
        if product.phase == "forward":
            counts[product.layer] = (forward + product.multiply_adds, backward)
        else:
            counts[product.layer] = (forward, backward + product.multiply_adds)
    return counts


def flops_per_step(network: Network, batch: int, mode: str = "training") -> int:
    """Floating-point operations of a training step, or of a call in inference.

    They are two for each multiply-add.
    """
    counts = multiply_adds(network).values()
    return 2 * batch * sum(forward if mode == "inference" else forward + backward
                           for forward, backward in counts)


def least_step_bytes(network: Network, batch: int, element_bytes: int = FLOAT_BYTES) -> int:
    """Bytes that a training step of one mini-batch certainly holds at a time.

    Weights and momentum in fp32, and once what the products read, which their backward pass reads
    again: 8 x parameters + element_bytes x batch x (sizes of the products' inputs).
    """
    read = {source for layer in network.layers if layer.op in PRODUCTS
            for source in layer.inputs}
    values = sum(math.prod(network.shape_of(source)) for source in read)
    return 2 * parameter_bytes(network) + element_bytes * batch * values


def least_call_bytes(network: Network, batch: int, element_bytes: int = FLOAT_BYTES) -> int:
    """Bytes that inference of one mini-batch certainly holds: weights, inputs and outputs."""
    values = math.prod(network.input_shape) + math.prod(network.layers[-1].output_shape)
    return element_bytes * (network.parameter_count + batch * values)


def parameter_bytes(network: Network) -> int:
    """Bytes of all trained tensors in float32: what one gradient aggregation moves."""
    return FLOAT_BYTES * network.parameter_count


def _depends_on_parameters(network: Network) -> dict[str, bool]:
    trained = {"input": False}
    for layer in network.layers:
        below = any(trained[source] for source in layer.inputs)
        trained[layer.name] = bool(layer.parameters) or below
    return trained


def _products_of(layer: Layer, input_shape: Shape, batch: int,
                 input_gradient: bool) -> list[MatrixProduct]:
    if layer.op in ("dense", "tied_dense", "linear"):
        rows = batch * math.prod(layer.output_shape[:-1])
        return _affine(layer, rows, layer.output_shape[-1], input_shape[-1], input_gradient)
    if layer.op == "conv2d":
        (filters, height, width), groups = layer.output_shape, layer.attributes["groups"]
        window = math.prod(layer.parameters["weight"][1:])
        products = _affine(layer, batch * height * width, filters // groups, window, input_gradient)
        return [replace(product, count=groups) for product in products]
    if layer.op == "lstm":
        return _lstm(layer, input_shape, batch, input_gradient)
    if layer.op in ("attention", "grouped_attention"):
        return _attention(layer, batch)
    return []


def _affine(layer: Layer, rows: int, outputs: int, features: int,
            input_gradient: bool) -> list[MatrixProduct]:
    """Y = X W^T, dW = dY^T X, dX = dY W, with X [rows, features] and W [outputs, features]."""
    name, op = layer.name, layer.op
    products = [MatrixProduct(name, op, "forward", rows, outputs, features, "NT"),
                MatrixProduct(name, op, "backward_weights", outputs, features, rows, "TN"),
                MatrixProduct(name, op, "backward_data", rows, features, outputs, "NN")]
    return products if input_gradient else products[:2]


def _lstm(layer: Layer, input_shape: Shape, batch: int,
          input_gradient: bool) -> list[MatrixProduct]:
    """The input's product over all T words at once, the state's word by word."""
    length, features = input_shape
    units = layer.output_shape[-1]
    name, op, gates, rows = layer.name, layer.op, 4 * units, batch * length
    return [*_affine(layer, rows, gates, features, input_gradient),
            MatrixProduct(name, op, "forward", batch, gates, units, "NT", count=length),
            MatrixProduct(name, op, "backward_data", batch, units, gates, "NN", count=length),
            MatrixProduct(name, op, "backward_weights", gates, units, rows, "TN")]


def _attention(layer: Layer, batch: int) -> list[MatrixProduct]:
    """Scores Q K^T and outputs P V of each head, whole: what a causal mask saves is not counted."""
    (length, features), heads = layer.output_shape, layer.attributes["heads"]
    name, op, width, count = layer.name, layer.op, features // heads, batch * heads
    scores, outputs = (length, width, "NT"), (width, length, "NN")
    # dQ = dS K, dK = dS^T Q, dP = dO V^T, dV = P^T dO
    backward = [outputs, (width, length, "TN"), scores, (width, length, "TN")]
    shapes = [("forward", scores), ("forward", outputs),
              *(("backward_data", each) for each in backward)]
    return [MatrixProduct(name, op, phase, length, n, k, transposition, count)
            for phase, (n, k, transposition) in shapes]
