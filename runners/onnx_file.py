"""A network as one ONNX file, written from our own description: no framework exports it.

Engines that read ONNX share it, so that they run the same graph. Images are N C H W as ours; LSTM
gates i f g o become ONNX's i o f c. The file has a fixed batch and no batch statistics: batch norm
reads running ones, dropout is gone.
"""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from runners.protocol import Unsupported, assert_network, lowered

OPSET = 21
# Every release of the engines that know the opset reads it.
IR_VERSION = 10
# The opset's convolutions take no bf16.
KINDS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16}
INPUT, OUTPUT = "input", "output"
STATISTICS = (".mean", ".variance")
# Of our gates i f g o in ONNX's order.
GATES = (0, 3, 1, 2)


class Graph:
    """Collects nodes and constants; an operation below adds those of one layer."""

    opset = OPSET

    def __init__(self, network, arrays, batch, kind):
        self.network, self.arrays, self.batch = network, arrays, batch
        self.kind, self.type = KINDS[kind], helper.tensor_dtype_to_np_dtype(KINDS[kind])
        self.nodes, self.constants, self.shapes = [], {}, {INPUT: network["input_shape"]}
        # The full names of the weights that some node reads.
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


def attention(graph, layer, name, x):
    heads, (length, width) = layer["attributes"]["heads"], layer["output_shape"]
    depth = width // heads
    apart = graph.reshape(x, [graph.batch, length, 3, heads, depth], f"{name}.apart")
    parts = graph.node("Transpose", [apart], f"{name}.parts", perm=[2, 0, 3, 1, 4])
    q, k, v = (graph.node("Gather", [parts, graph.constant(f"place{number}", np.array(number))],
                          f"{name}.{part}", axis=0) for number, part in enumerate("qkv"))
    return attend(graph, layer, name, q, k, v)


def grouped_attention(graph, layer, name, *inputs):
    a, (length, width) = layer["attributes"], layer["output_shape"]
    depth, shared = width // a["heads"], a["heads"] // a["groups"]
    found = []
    for part, x, heads in zip("qkv", inputs, (a["heads"], a["groups"], a["groups"]), strict=True):
        apart = graph.reshape(x, [graph.batch, length, heads, depth], f"{name}.{part}.apart")
        split = graph.node("Transpose", [apart], f"{name}.{part}.heads", perm=[0, 2, 1, 3])
        if heads < a["heads"]:
            alone = graph.reshape(split, [graph.batch, heads, 1, length, depth],
                                  f"{name}.{part}.alone")
            copies = graph.constant(f"{name}.copies",
                                    np.array([graph.batch, heads, shared, length, depth]))
            spread = graph.node("Expand", [alone, copies], f"{name}.{part}.spread")
            split = graph.reshape(spread, [graph.batch, a["heads"], length, depth],
                                  f"{name}.{part}")
        found.append(split)
    return attend(graph, layer, name, *found)


def attend(graph, layer, name, q, k, v):
    """(B, H, T, D) each -> (B, T, H D)."""
    heads, (length, width) = layer["attributes"]["heads"], layer["output_shape"]
    depth = width // heads
    turned = graph.node("Transpose", [k], f"{name}.k.turned", perm=[0, 1, 3, 2])
    products = graph.node("MatMul", [q, turned], f"{name}.products")
    scale = graph.constant(f"{name}.scale", np.float32(1 / math.sqrt(depth)))
    scores = graph.node("Mul", [products, scale], f"{name}.scores")
    if layer["attributes"]["causal"]:
        mask = np.where(np.tri(length, dtype=bool), 0, np.float32(-1e4))
        mask = graph.constant(f"mask{length}", mask)
        scores = graph.node("Add", [scores, mask], f"{name}.masked")
    shares = graph.node("Softmax", [scores], f"{name}.shares", axis=-1)
    read = graph.node("MatMul", [shares, v], f"{name}.read")
    joined = graph.node("Transpose", [read], f"{name}.joined", perm=[0, 2, 1, 3])
    return graph.reshape(joined, [graph.batch, length, width], name)


def layer_norm(graph, layer, name, x):
    return graph.node("LayerNormalization", [x, graph.weight(layer, "scale"),
                                             graph.weight(layer, "shift")], name, axis=-1,
                      epsilon=layer["attributes"]["epsilon"])


def rms_norm(graph, layer, name, x):
    # In float32: a square may pass float16's range.
    wide = graph.node("Cast", [x], f"{name}.wide", to=TensorProto.FLOAT)
    square = graph.node("Mul", [wide, wide], f"{name}.square")
    axis = graph.constant("axis-1", np.array([-1]))
    mean = graph.node("ReduceMean", [square, axis], f"{name}.mean", keepdims=1)
    epsilon = graph.node("Constant", [], f"{name}.epsilon",
                         value_float=layer["attributes"]["epsilon"])
    root = graph.node("Sqrt", [graph.node("Add", [mean, epsilon], f"{name}.sum")], f"{name}.root")
    normal = graph.node("Div", [wide, root], f"{name}.normal")
    back = graph.node("Cast", [normal], f"{name}.back", to=graph.kind)
    return graph.node("Mul", [back, graph.weight(layer, "scale")], name)


def rotary(graph, layer, name, x):
    a, (length, features) = layer["attributes"], layer["output_shape"]
    half = features // (2 * a["heads"])
    angles = np.outer(np.arange(length), a["base"] ** (-np.arange(half) / half))[:, None]
    cos, sin = (graph.constant(f"{name}.{key}", f(angles).astype(np.float32))
                for key, f in (("cos", np.cos), ("sin", np.sin)))  # (T, 1, D/2)
    apart = graph.reshape(x, [graph.batch, length, a["heads"], 2, half], f"{name}.apart")
    left, right = (graph.node("Gather", [apart, graph.constant(f"place{n}", np.array(n))],
                              f"{name}.{n}", axis=3) for n in (0, 1))

    def times(part, table, key):
        return graph.node("Mul", [part, table], f"{name}.{key}")

    turned = [graph.node("Sub", [times(left, cos, "a"), times(right, sin, "b")], f"{name}.left"),
              graph.node("Add", [times(right, cos, "c"), times(left, sin, "d")], f"{name}.right")]
    joined = graph.node("Concat", turned, f"{name}.joined", axis=3)
    return graph.reshape(joined, [graph.batch, length, features], name)


def swiglu(graph, layer, name, gate, value):
    share = graph.node("Sigmoid", [gate], f"{name}.share")
    return graph.node("Mul", [graph.node("Mul", [gate, share], f"{name}.silu"), value], name)


def tokens(graph, layer, name, x):
    length, channels = layer["output_shape"]
    rows = graph.reshape(x, [graph.batch, channels, length], f"{name}.rows")
    return graph.node("Transpose", [rows], name, perm=[0, 2, 1])


def class_token(graph, layer, name, x):
    first = graph.weight(layer, "weight", lambda array: np.tile(array, (graph.batch, 1, 1)))
    return graph.node("Concat", [first, x], name, axis=1)


def first_token(graph, layer, name, x):
    return graph.node("Gather", [x, graph.constant("place0", np.array(0))], name, axis=1)


def plain(op, **attributes):
    """Lower a layer to one ONNX operator of the same meaning."""
    return lambda graph, layer, name, *inputs: graph.node(op, list(inputs), name, **attributes)


OPERATIONS = {
    "dense": dense, "conv2d": conv2d, "max_pool": max_pool, "avg_pool": avg_pool,
    "global_avg_pool": global_avg_pool, "batch_norm": batch_norm, "lrn": lrn,
    "subsample": subsample, "pad_channels": pad_channels, "lstm": lstm, "attention": attention,
    "layer_norm": layer_norm, "tokens": tokens, "class_token": class_token,
    "first_token": first_token, "relu": plain("Relu"), "sigmoid": plain("Sigmoid"),
    "dropout": plain("Identity"), "add": plain("Add"), "concat": plain("Concat", axis=1),
    "flatten": plain("Flatten"),
    "embedding": lambda graph, layer, name, x: graph.node(
        "Gather", [graph.weight(layer, "weight"), x], name, axis=0),
    "gelu": lambda graph, layer, name, x: graph.node(
        "Gelu", [x], name, approximate="tanh" if layer["attributes"]["tanh"] else "none"),
    "positions": lambda graph, layer, name, x: graph.node(
        "Add", [x, graph.weight(layer, "weight")], name),
    "tied_dense": lambda graph, layer, name, x: graph.node(
        "MatMul", [x, graph.weight(layer, "weight", transposed)], name),
    "linear": lambda graph, layer, name, x: graph.node(
        "MatMul", [x, graph.weight(layer, "weight", transposed)], name),
    "rms_norm": rms_norm, "rotary": rotary, "grouped_attention": grouped_attention,
    "swiglu": swiglu,
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


def transposed(array):
    """A dense weight [out, in] as MatMul reads it."""
    return array.T
