"""A network as one ONNX file, written from our own description: no framework exports it.

Engines that read ONNX share it, so that they run the same graph. Images are N C H W as ours; LSTM
gates i f g o become ONNX's i o f c. The file has a fixed batch and no batch statistics: batch norm
reads running ones, dropout is gone.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from runners.onnx import transformers
from runners.onnx.transformers import transposed
from runners.protocol import Unsupported, assert_network, lowered

OPSET = 21
# Every release of the engines that know the opset reads it.
IR_VERSION = 10
# The opset's convolutions take no bf16.
KINDS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16}
INPUT, OUTPUT = "input", "output"
STATISTICS = (".mean", ".variance")
# The numbers of our gates i f g o in ONNX's order.
GATES = (0, 3, 1, 2)


class Graph:
    """Collects nodes and constants; an operation below adds those of one layer."""

    opset = OPSET

    def __init__(self, network, arrays, batch, kind):
        self.network, self.arrays, self.batch = network, arrays, batch
        self.kind, self.type = KINDS[kind], helper.tensor_dtype_to_np_dtype(KINDS[kind])
        self.nodes, self.constants, self.shapes = [], {}, {INPUT: network["input_shape"]}
        # The full names of all weights that nodes read.
        self.read = set()

    def constant(self, name, array):
        """Add an array in the file's number format, or whole numbers as they are."""
        array = np.asarray(array)
        kind = self.type if array.dtype.kind == "f" else np.int64
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(array.astype(kind, order="C"), name)
        return name

    def weight(self, layer, parameter, change=lambda array: array):
        """Add a parameter of a layer, or of the layer whose table it shares."""
        name = f"{layer['attributes'].get('tied', layer['name'])}.{parameter}"
        self.read.add(name)
        array = self.arrays[name]
        changed = change(array)
        return self.constant(name if changed is array else f"{name}.as_read", changed)

    def node(self, op, inputs, output, **attributes):
        """Add a node with one output; return the output's name."""
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def stored(self, name, value):
        """Return the value of a tensor as its readers find it; INT8 stores it in fewer bits."""
        return value

    def reshape(self, source, shape, output):
        return self.node("Reshape", [source, self.constant(f"{output}.shape", np.array(shape))],
                         output)


def dense(graph, layer, name, x):
    if len(graph.shapes[x]) == 1:
        return graph.node("Gemm", [x, graph.weight(layer, "weight"), graph.weight(layer, "bias")],
                          name, transB=1)
    weight = graph.weight(layer, "weight", transposed)
    product = graph.node("MatMul", [x, weight], f"{name}.product")
    return graph.node("Add", [product, graph.weight(layer, "bias")], name)


def conv2d(graph, layer, name, x):
    return convolution(graph, layer, name, x,
                       [graph.weight(layer, key) for key in layer["parameters"]])


def convolution(graph, layer, name, x, weights):
    a = layer["attributes"]
    return graph.node("Conv", [x, *weights], name, kernel_shape=[a["kernel"]] * 2,
                      group=a["groups"], strides=[a["stride"]] * 2, pads=[a["padding"]] * 4)


def max_pool(graph, layer, name, x):
    a = layer["attributes"]
    return graph.node("MaxPool", [x], name, kernel_shape=[a["kernel"]] * 2,
                      strides=[a["stride"]] * 2, pads=[a["padding"]] * 4, ceil_mode=int(a["ceil"]))


def avg_pool(graph, layer, name, x):
    a = layer["attributes"]
    return graph.node("AveragePool", [x], name, kernel_shape=[a["kernel"]] * 2,
                      strides=[a["stride"]] * 2)


def global_avg_pool(graph, layer, name, x):
    return graph.node("Flatten", [graph.node("GlobalAveragePool", [x], f"{name}.image")], name)


def batch_norm(graph, layer, name, x):
    kinds = ("scale", "shift", "mean", "variance")
    return graph.node("BatchNormalization", [x, *(graph.weight(layer, kind) for kind in kinds)],
                      name, epsilon=layer["attributes"]["epsilon"])


def lrn(graph, layer, name, x):
    a = layer["attributes"]
    return graph.node("LRN", [x], name, size=a["size"], alpha=a["alpha"], beta=a["beta"], bias=1.0)


def subsample(graph, layer, name, x):
    stride, whole = layer["attributes"]["stride"], np.iinfo(np.int64).max
    bounds = {"first": [0, 0], "last": [whole] * 2, "axes": [2, 3], "steps": [stride] * 2}
    return graph.node("Slice", [x, *(graph.constant(f"{name}.{key}", np.array(value))
                                     for key, value in bounds.items())], name)


def pad_channels(graph, layer, name, x):
    pads = np.array([0, 0, 0, 0, 0, layer["attributes"]["extra"], 0, 0])
    return graph.node("Pad", [x, graph.constant(f"{name}.pads", pads)], name)


def lstm(graph, layer, name, x):
    units = layer["attributes"]["units"]

    def as_read(array):
        gates = array.reshape(4, units, *array.shape[1:])[list(GATES)]
        both = gates.reshape(array.shape)[None]
        # A second bias, of the hidden state's product.
        return both if array.ndim > 1 else np.concatenate([both, np.zeros_like(both)], 1)

    # (B, T, F) -> (T, B, F)
    words = graph.node("Transpose", [x], f"{name}.words", perm=[1, 0, 2])
    weights = [graph.weight(layer, key, as_read)
               for key in ("weight_input", "weight_hidden", "bias")]
    states = graph.node("LSTM", [words, *weights], f"{name}.states", hidden_size=units)
    # (T, 1, B, H) -> (B, T, H)
    flat = graph.reshape(states, [-1, graph.batch, units], f"{name}.flat")
    return graph.node("Transpose", [flat], name, perm=[1, 0, 2])


def plain(op, **attributes):
    """Lower a layer to one ONNX operator of the same meaning."""
    return lambda graph, layer, name, *inputs: graph.node(op, list(inputs), name, **attributes)


OPERATIONS = {
    "dense": dense, "conv2d": conv2d, "max_pool": max_pool, "avg_pool": avg_pool,
    "global_avg_pool": global_avg_pool, "batch_norm": batch_norm, "lrn": lrn,
    "subsample": subsample, "pad_channels": pad_channels, "lstm": lstm,
    "relu": plain("Relu"), "sigmoid": plain("Sigmoid"),
    "dropout": plain("Identity"), "add": plain("Add"), "concat": plain("Concat", axis=1),
    "flatten": plain("Flatten"),
    "embedding": lambda graph, layer, name, x: graph.node(
        "Gather", [graph.weight(layer, "weight"), x], name, axis=0),
    **transformers.OPERATIONS,
}


def model_of(network, arrays, batch, kind="fp32"):
    """Return the ONNX model of a network (its JSON form), and how many trained numbers it holds.

    `arrays` are weights and running statistics by full name. The input is float32 or int32 words
    and the output is float32, whatever `kind` is between them.
    """
    if kind not in KINDS:
        raise Unsupported(f"precision '{kind}': an ONNX file of opset {OPSET} has "
                          f"{', '.join(KINDS)}")
    return model_from(Graph(network, arrays, batch, kind), OPERATIONS)


def model_from(graph, operations):
    """Lower each layer of a graph's network by `operations`; return what `model_of` does."""
    network, batch = graph.network, graph.batch
    words = bool(network["vocabulary"])
    names = {INPUT: INPUT}
    if graph.type != np.float32 and not words:
        names[INPUT] = graph.node("Cast", [INPUT], "input.cast", to=graph.kind)
        graph.shapes[names[INPUT]] = network["input_shape"]
    names[INPUT] = graph.stored(INPUT, names[INPUT])
    for layer in network["layers"]:
        name, inputs = layer["name"], [names[source] for source in layer["inputs"]]
        found = lowered(operations, layer)(graph, layer, name, *inputs)
        graph.shapes[found] = layer["output_shape"]
        names[name] = graph.stored(name, found)
    graph.node("Cast", [names[name]], OUTPUT, to=TensorProto.FLOAT)
    shape = [batch, *layer["output_shape"]]
    made = helper.make_graph(
        graph.nodes, network["name"],
        [helper.make_tensor_value_info(INPUT, TensorProto.INT32 if words else TensorProto.FLOAT,
                                       [batch, *network["input_shape"]])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, shape)],
        list(graph.constants.values()))
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", graph.opset)],
                              ir_version=IR_VERSION, producer_name="dlbench")
    assert_shapes(model, network)
    read = [name for name in graph.read if not name.endswith(STATISTICS)]
    return model, sum(graph.arrays[name].size for name in read)


def assert_shapes(model, network):
    """Raise `Different` unless ONNX's own shape inference finds the network's shapes."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True,
                                                 data_prop=True)
    found = {each.name: tuple(size.dim_value for size in each.type.tensor_type.shape.dim)[1:]
             for each in inferred.graph.value_info}
    # The file has the weights as its operators read them, so their shapes are not compared.
    shapes = {f"{layer['name']}.{name}": shape for layer in network["layers"]
              for name, shape in layer["parameters"].items()}
    assert_network(network, found, shapes)
