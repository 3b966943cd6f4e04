"""Operations of Transformers as ONNX nodes, for `network_file`: GPT-2's, ViT's and Llama's.

Tokens are (B, T, F).
"""

import math

import numpy as np


def attention(graph, layer, name, x):
    heads, (length, width) = layer["attributes"]["heads"], layer["output_shape"]
    depth = width // heads
    apart = graph.reshape(x, [graph.batch, length, 3, heads, depth], f"{name}.apart")
    parts = graph.node("Transpose", [apart], f"{name}.parts", perm=[2, 0, 3, 1, 4])
    q, k, v = (graph.node("Gather", [parts, graph.constant(f"place{number}", np.array(number))],
                          f"{name}.{part}", axis=0) for number, part in enumerate("qkv"))
    return attend(graph, layer, name, (q, k, v))


def attend(graph, layer, name, parts):
    """Weigh values by the products of queries and keys, all (B, H, T, D) -> (B, T, H D)."""
    (q, k, v), (length, width) = parts, layer["output_shape"]
    depth = width // layer["attributes"]["heads"]
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


def tokens(graph, layer, name, x):
    length, channels = layer["output_shape"]
    rows = graph.reshape(x, [graph.batch, channels, length], f"{name}.rows")
    return graph.node("Transpose", [rows], name, perm=[0, 2, 1])


def class_token(graph, layer, name, x):
    first = graph.weight(layer, "weight", lambda array: np.tile(array, (graph.batch, 1, 1)))
    return graph.node("Concat", [first, x], name, axis=1)


def first_token(graph, layer, name, x):
    return graph.node("Gather", [x, graph.constant("place0", np.array(0))], name, axis=1)


def rms_norm(graph, layer, name, x):
    square = graph.node("Mul", [x, x], f"{name}.square")
    mean = graph.node("ReduceMean", [square, graph.constant("last", np.array([-1]))],
                      f"{name}.mean")
    epsilon = graph.constant(f"{name}.epsilon", np.float32(layer["attributes"]["epsilon"]))
    root = graph.node("Sqrt", [graph.node("Add", [mean, epsilon], f"{name}.sum")], f"{name}.root")
    normal = graph.node("Div", [x, root], f"{name}.normal")
    return graph.node("Mul", [normal, graph.weight(layer, "scale")], name)


def rotary(graph, layer, name, x):
    """Turn features i and i + D/2 of each head by t base^(-2 i / D)."""
    heads, (length, width) = layer["attributes"]["heads"], layer["output_shape"]
    half = width // heads // 2
    angles = np.arange(length)[:, None] * layer["attributes"]["base"] ** (-np.arange(half) / half)
    # (T, 1, 1, D/2)
    cos, sin = (graph.constant(f"{name}.{key}", each[:, None, None].astype(np.float32))
                for key, each in (("cos", np.cos(angles)), ("sin", np.sin(angles))))
    pairs = graph.reshape(x, [graph.batch, length, heads, 2, half], f"{name}.pairs")
    sides = [graph.constant(f"pair{number}", np.array([number])) for number in range(2)]
    left, right = (graph.node("Gather", [pairs, side], f"{name}.{side}", axis=3) for side in sides)
    one = graph.node("Sub", [graph.node("Mul", [left, cos], f"{name}.left.cos"),
                             graph.node("Mul", [right, sin], f"{name}.right.sin")], f"{name}.one")
    other = graph.node("Add", [graph.node("Mul", [right, cos], f"{name}.right.cos"),
                               graph.node("Mul", [left, sin], f"{name}.left.sin")], f"{name}.other")
    turned = graph.node("Concat", [one, other], f"{name}.turned", axis=3)
    return graph.reshape(turned, [graph.batch, length, width], name)


def grouped_attention(graph, layer, name, *inputs):
    a, length = layer["attributes"], layer["output_shape"][0]
    parts = []
    for key, x, heads in zip("qkv", inputs, (a["heads"], a["groups"], a["groups"]), strict=True):
        apart = graph.reshape(x, [graph.batch, length, heads, -1], f"{name}.{key}.apart")
        part = graph.node("Transpose", [apart], f"{name}.{key}", perm=[0, 2, 1, 3])
        if heads != a["heads"]:
            shared = np.repeat(np.arange(heads), a["heads"] // heads)
            part = graph.node("Gather", [part, graph.constant(f"{name}.shared", shared)],
                              f"{name}.{key}.shared", axis=1)
        parts.append(part)
    return attend(graph, layer, name, parts)


def swiglu(graph, layer, name, gate, value):
    share = graph.node("Sigmoid", [gate], f"{name}.share")
    return graph.node("Mul", [graph.node("Mul", [gate, share], f"{name}.gate"), value], name)


def linear(graph, layer, name, x):
    return graph.node("MatMul", [x, graph.weight(layer, "weight", transposed)], name)


def transposed(array):
    """A dense weight [out, in] as MatMul reads it."""
    return array.T


OPERATIONS = {
    "attention": attention, "layer_norm": layer_norm, "tokens": tokens, "class_token": class_token,
    "first_token": first_token, "rms_norm": rms_norm, "rotary": rotary, "swiglu": swiglu,
    "grouped_attention": grouped_attention, "linear": linear, "tied_dense": linear,
    "gelu": lambda graph, layer, name, x: graph.node(
        "Gelu", [x], name, approximate="tanh" if layer["attributes"]["tanh"] else "none"),
    "positions": lambda graph, layer, name, x: graph.node(
        "Add", [x, graph.weight(layer, "weight")], name),
}
