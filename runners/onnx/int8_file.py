"""A network as an ONNX file in INT8: the operators of `network_file` between quantised tensors.

Each quantised tensor passes a QuantizeLinear and a DequantizeLinear; weights and biases are stored
as integers (QDQ form). Engines make integer kernels of it.
"""

import numpy as np
from onnx import numpy_helper

from runners import int8
from runners.onnx import network_file
from runners.protocol import Unsupported


class Graph(network_file.Graph):
    """Collects nodes and constants; knows the scales of tensors and the integers of products."""

    def __init__(self, network, arrays, batch):
        super().__init__(network, arrays, batch, "fp32")
        if reason := int8.refusal(network):
            raise Unsupported(reason)
        self.scales = int8.scales(network, arrays)
        self.products = int8.quantised_products(network, arrays)
        self.norms = int8.folded(network)

    def integers(self, name, array):
        """Add an array of integers as it is."""
        self.constants[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def stored(self, name, value):
        """Return a value as it is after it was stored in uint8, if this tensor is quantised."""
        if name not in self.scales:
            return value
        scale, zero = self.scales[name]
        ends = [self.constant(f"{name}.step", np.array(scale)),
                self.integers(f"{name}.zero", np.array(zero, np.uint8))]
        levels = self.node("QuantizeLinear", [value, *ends], f"{name}.levels")
        found = self.node("DequantizeLinear", [levels, *ends], f"{name}.stored")
        self.shapes[found] = self.shapes[value]
        return found

    def dequantised(self, name, levels, scales):
        """Return the numbers that constant integers stand for."""
        inputs = [self.integers(f"{name}.levels", levels),
                  self.constant(f"{name}.steps", scales),
                  # ONNX Runtime has integer kernels for products with a zero point only.
                  self.integers(f"{name}.zeros", np.zeros(len(scales), levels.dtype))]
        return self.node("DequantizeLinear", inputs, name, axis=0)


def weights_of(graph, layer):
    """Return a product's weight and, where it has one, its bias."""
    name, product = layer["name"], graph.products[layer["name"]]
    # All its numbers count as trained, folded or not.
    graph.read.update(int8.names_of(layer).values())
    weights = [graph.dequantised(f"{name}.weight", product.weight, product.scales)]
    if product.bias is not None:
        weights.append(graph.dequantised(f"{name}.bias", product.bias, product.bias_scales))
    return weights


def dense(graph, layer, name, x):
    *sequence, features = graph.shapes[x]
    # (B, T, F) -> (B T, F): the integer product with a bias takes matrices.
    rows = graph.reshape(x, [-1, features], f"{name}.rows") if sequence else x
    product = graph.node("Gemm", [rows, *weights_of(graph, layer)],
                         f"{name}.product" if sequence else name, transB=1)
    if not sequence:
        return product
    return graph.reshape(product, [graph.batch, *layer["output_shape"]], name)


def conv2d(graph, layer, name, x):
    return network_file.convolution(graph, layer, name, x, weights_of(graph, layer))


def batch_norm(graph, layer, name, x):
    if name not in graph.norms:
        return network_file.batch_norm(graph, layer, name, x)
    graph.read.update(f"{name}.{key}" for key in layer["parameters"])
    return x


OPERATIONS = {**network_file.OPERATIONS, "dense": dense, "linear": dense, "tied_dense": dense,
              "conv2d": conv2d, "batch_norm": batch_norm}


def model_of(network, arrays, batch):
    """Return the model and how many trained numbers it holds, as `network_file.model_of` does."""
    return network_file.model_from(Graph(network, arrays, batch), OPERATIONS)
