"""A network as an ONNX file in bf16, of operators that ONNX Runtime's CUDA provider has in bf16.

Its batch norm, pooling and LRN read no bf16 (1.31). A batch norm is folded into its convolution,
as ONNX Runtime folds it in other formats. Other operations without bf16 read float32. On CUDA it
has no pooling of this opset: a mean replaces the global one, and a session refuses MaxPool.
"""

import numpy as np
from onnx import TensorProto, helper

from runners import int8
from runners.onnx import network_file
from runners.protocol import Unsupported

# The first whose convolutions take bf16.
OPSET = 22


class Graph(network_file.Graph):
    """Collects nodes and constants in bf16; knows which batch norms convolutions do."""

    opset = OPSET

    def __init__(self, network, arrays, batch):
        super().__init__(network, arrays, batch, "fp32")
        self.kind = TensorProto.BFLOAT16
        self.type = helper.tensor_dtype_to_np_dtype(self.kind)
        self.norms = int8.folded(network)
        of_norm = {layer["name"]: layer for layer in network["layers"]}
        self.norm_of = {product: of_norm[norm] for norm, product in self.norms.items()}


def conv2d(graph, layer, name, x):
    norm = graph.norm_of.get(name)
    if norm is None:
        return network_file.conv2d(graph, layer, name, x)
    graph.read.update(f"{name}.{key}" for key in layer["parameters"])
    folded = int8.folded_weights(layer, graph.arrays, norm)
    return network_file.convolution(graph, layer, name, x, [
        graph.constant(f"{name}.{key}.folded", array)
        for key, array in zip(("weight", "bias"), folded, strict=True)])


def batch_norm(graph, layer, name, x):
    graph.read.update(f"{name}.{key}" for key in layer["parameters"])
    if name in graph.norms:
        return x
    return in_float32(network_file.batch_norm)(graph, layer, name, x)


def in_float32(operation):
    """Let an operation of one input read and write float32."""

    def lowered(graph, layer, name, x):
        wide = graph.node("Cast", [x], f"{name}.wide", to=TensorProto.FLOAT)
        graph.shapes[wide] = graph.shapes[x]
        stored, graph.type = graph.type, helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT)
        found = operation(graph, layer, f"{name}.computed", wide)
        graph.type = stored
        return graph.node("Cast", [found], name, to=graph.kind)

    return lowered


def global_avg_pool(graph, layer, name, x):
    axes = graph.constant(f"{name}.axes", np.array([2, 3]))
    return graph.node("ReduceMean", [x, axes], name, keepdims=0)


def lstm(graph, layer, name, x):
    raise Unsupported(f"layer {name}: ONNX Runtime's CUDA provider has no LSTM in bf16")


OPERATIONS = {**network_file.OPERATIONS, "conv2d": conv2d, "batch_norm": batch_norm, "lstm": lstm,
              "global_avg_pool": in_float32(global_avg_pool),
              **{name: in_float32(network_file.OPERATIONS[name])
                 for name in ("max_pool", "avg_pool", "lrn")}}


def model_of(network, arrays, batch):
    """Return the model and how many trained numbers it holds, as `network_file.model_of` does."""
    return network_file.model_from(Graph(network, arrays, batch), OPERATIONS)
