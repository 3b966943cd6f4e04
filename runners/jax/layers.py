"""The network's layers in JAX: pure functions of parameters and inputs.

Images are N H W C; weights are stored [in, out] and [kh, kw, in, out], as JAX's libraries do.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.protocol import lowered


class Style(NamedTuple):
    """How the layers compute: what tier and precision decide."""

    # The type of operands and activations; parameters, statistics and loss are float32.
    dtype: Any
    # The precision of float32 products.
    precision: lax.Precision
    # Words of an LSTM in one iteration of the compiled loop.
    unroll: int
    # The implementation of `jax.nn.dot_product_attention`; None leaves the choice to JAX.
    attention: Any = None
    # If False, batch norm reads the running averages and dropout keeps all values.
    training: bool = True
    # In how many equal parts the heads lie, each part with its own q, k and v side by side.
    heads_in: int = 1


def forward(layers, style, parameters, statistics, key, x):
    """Return every layer's output and the new running averages; `key` is for dropout alone."""
    outputs = {"input": x if jnp.issubdtype(x.dtype, jnp.integer) else x.astype(style.dtype)}
    new_statistics = {}
    for number, layer in enumerate(layers):
        name, inputs = layer["name"], [outputs[source] for source in layer["inputs"]]
        if layer["op"] in ("batch_norm", "dropout") and not style.training:
            outputs[name] = inputs[0] if layer["op"] == "dropout" else by_averages(
                inputs[0], layer, parameters[name], statistics[name])
        elif layer["op"] == "batch_norm":
            outputs[name], new_statistics[name] = batch_norm(
                inputs[0], layer, parameters[name], statistics[name])
        elif layer["op"] == "dropout":
            outputs[name] = dropout(inputs[0], layer, jax.random.fold_in(key, number))
        else:
            outputs[name] = lowered(OPERATIONS, layer)(
                inputs, layer["attributes"],
                parameters.get(layer["attributes"].get("tied", name)), style)
    return outputs, new_statistics


# Operation -> function of its inputs, attributes, parameters and the style.
OPERATIONS = {
    "dense": lambda x, a, p, style: biased(dot(x[0], p["weight"], style), p["bias"]),
    "conv2d": lambda x, a, p, style: conv(x[0], a, p, style),
    "max_pool": lambda x, a, p, style: max_pool(x[0], a),
    "avg_pool": lambda x, a, p, style: (
        lax.reduce_window(x[0], 0.0, lax.add, *window(a)) / a["kernel"] ** 2),
    "global_avg_pool": lambda x, a, p, style: x[0].mean((1, 2)),
    "relu": lambda x, a, p, style: jax.nn.relu(x[0]),
    "sigmoid": lambda x, a, p, style: jax.nn.sigmoid(x[0]),
    "lrn": lambda x, a, p, style: lrn(x[0], a),
    "concat": lambda x, a, p, style: jnp.concatenate(x, 3),
    "add": lambda x, a, p, style: x[0] + x[1],
    # The network's features are in the order C H W.
    "flatten": lambda x, a, p, style: (
        jnp.moveaxis(x[0], 3, 1).reshape(len(x[0]), -1)),
    "subsample": lambda x, a, p, style: x[0][:, ::a["stride"], ::a["stride"], :],
    "pad_channels": lambda x, a, p, style: jnp.pad(
        x[0], [(0, 0), (0, 0), (0, 0), (0, a["extra"])]),
    # Cast after the choice of rows, so that their gradients are summed in float32. Sums in bf16
    # took half of LSTM-32's step on a GPU (JAX 0.11.2, H200), and were 3 % off on a CPU.
    "embedding": lambda x, a, p, style: p["weight"][x[0]].astype(style.dtype),
    "lstm": lambda x, a, p, style: lstm(x[0], p, style),
    "layer_norm": lambda x, a, p, style: layer_norm(x[0], a, p),
    "gelu": lambda x, a, p, style: jax.nn.gelu(x[0], approximate=a["tanh"]),
    "attention": lambda x, a, p, style: attention(x[0], a, style),
    "positions": lambda x, a, p, style: biased(x[0], p["weight"]),
    "tokens": lambda x, a, p, style: x[0].reshape(len(x[0]), -1, x[0].shape[-1]),
    "class_token": lambda x, a, p, style: class_token(x[0], p),
    "first_token": lambda x, a, p, style: x[0][:, 0],
    "tied_dense": lambda x, a, p, style: dot(x[0], p["weight"].T, style),
    "linear": lambda x, a, p, style: dot(x[0], p["weight"], style),
    "rms_norm": lambda x, a, p, style: rms_norm(x[0], a, p),
    "rotary": lambda x, a, p, style: rotary(x[0], a),
    "grouped_attention": lambda x, a, p, style: attend(
        *(split_heads(part, heads) for part, heads in
          zip(x, (a["heads"], a["groups"], a["groups"]), strict=True)), a, style),
    "swiglu": lambda x, a, p, style: jax.nn.silu(x[0]) * x[1],
}


def dot(x, weight, style):
    return jnp.dot(x, weight.astype(x.dtype), precision=style.precision)


def conv(x, a, p, style):
    y = lax.conv_general_dilated(
        x, p["weight"].astype(x.dtype), window_strides=(a["stride"],) * 2,
        padding=((a["padding"],) * 2,) * 2, feature_group_count=a["groups"],
        dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=style.precision)
    return biased(y, p["bias"]) if a["bias"] else y


def max_pool(x, a):
    kernel, strides, padding = window(a)
    if a["ceil"]:
        # Room for a last window that begins in the image.
        room = [(k - size - sum(sides)) % s for k, size, s, sides
                in zip(kernel, x.shape, strides, padding, strict=True)]
        padding = [(low, high + more) for (low, high), more in zip(padding, room, strict=True)]
    return lax.reduce_window(x, -jnp.inf, lax.max, kernel, strides, padding)


def lrn(x, a):
    """Normalise each value by the squares of its neighbouring channels, in float32."""
    x32, reach = x.astype(jnp.float32), a["size"] // 2
    squares = lax.reduce_window(x32 * x32, 0.0, lax.add, (1, 1, 1, a["size"]), (1,) * 4,
                                [(0, 0), (0, 0), (0, 0), (reach, reach)])
    return (x32 * (1 + a["alpha"] / a["size"] * squares) ** -a["beta"]).astype(x.dtype)


def window(a):
    """Dimensions, strides and padding of a window for `lax.reduce_window`, which rounds down."""
    side = (a["padding"], a["padding"])
    return ((1, a["kernel"], a["kernel"], 1), (1, a["stride"], a["stride"], 1),
            ((0, 0), side, side, (0, 0)))


def batch_norm(x, layer, p, statistics):
    """Normalise by the batch's own statistics, in float32, and update their running averages.

    The variance is the mean square less the squared mean, as by flax's `use_fast_variance`: both
    come from one pass over the image.
    """
    x32 = x.astype(jnp.float32)
    mean = x32.mean((0, 1, 2))
    variance = jnp.maximum(0, (x32 * x32).mean((0, 1, 2)) - mean * mean)
    scale = p["scale"] * lax.rsqrt(variance + layer["attributes"]["epsilon"])
    y = (x32 - mean) * scale + p["shift"]
    kept = layer["attributes"]["running"]
    averages = {"mean": kept * statistics["mean"] + (1 - kept) * mean,
                "variance": kept * statistics["variance"] + (1 - kept) * variance}
    return y.astype(x.dtype), averages


def by_averages(x, layer, p, statistics):
    """Normalise by the running averages, in float32."""
    scale = p["scale"] * lax.rsqrt(statistics["variance"] + layer["attributes"]["epsilon"])
    return ((x.astype(jnp.float32) - statistics["mean"]) * scale + p["shift"]).astype(x.dtype)


def layer_norm(x, a, p):
    """Normalise each token in float32, by its mean and its biased variance."""
    x32 = x.astype(jnp.float32)
    normal = x32 - x32.mean(-1, keepdims=True)
    normal *= lax.rsqrt((normal * normal).mean(-1, keepdims=True) + a["epsilon"])
    return (normal * p["scale"] + p["shift"]).astype(x.dtype)


def attention(x, a, style):
    """(B, T, 3 H D) -> (B, T, H D); JAX keeps heads as (B, T, H, D)."""
    parts = style.heads_in
    each = x.reshape(*x.shape[:2], parts, 3, a["heads"] // parts, x.shape[-1] // (3 * a["heads"]))
    q, k, v = jnp.moveaxis(each, 3, 0).reshape(3, *x.shape[:2], a["heads"], -1)
    return attend(q, k, v, a, style)


def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1)  # (B, T, H D) -> (B, T, H, D)


def attend(q, k, v, a, style):
    """(B, T, H, D) and twice (B, T, G, D) -> (B, T, H D); JAX repeats heads that are fewer."""
    batch, length = q.shape[:2]
    options = {"is_causal": a["causal"], "implementation": style.attention}
    # To train an odd length by cuDNN, JAX 0.11.2 wants an even one ("Unsupported sequence length").
    if style.attention == "cudnn" and style.training and length % 2:
        q, k, v = (jnp.pad(each, ((0, 0), (0, 1), (0, 0), (0, 0))) for each in (q, k, v))
        lengths = jnp.full((batch,), length, jnp.int32)
        options.update(query_seq_lengths=lengths, key_value_seq_lengths=lengths)
    # Its products have no argument for their precision.
    with jax.default_matmul_precision(
            "highest" if style.precision == lax.Precision.HIGHEST else None):
        y = jax.nn.dot_product_attention(q, k, v, **options)
    return y[:, :length].reshape(batch, length, -1)


def rms_norm(x, a, p):
    """Divide each token by its root mean square, in float32."""
    x32 = x.astype(jnp.float32)
    root = lax.rsqrt((x32 * x32).mean(-1, keepdims=True) + a["epsilon"])
    return (x32 * root * p["scale"]).astype(x.dtype)


def rotary(x, a):
    """Turn the pairs of each head, in float32."""
    left, right = jnp.split(split_heads(x, a["heads"]).astype(jnp.float32), 2, -1)
    half = left.shape[-1]
    angles = np.outer(np.arange(x.shape[1]), a["base"] ** (-np.arange(half) / half))
    cos, sin = (f(angles).astype(np.float32)[:, None] for f in (np.cos, np.sin))  # (T, 1, D/2)
    turned = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)
    return turned.reshape(x.shape).astype(x.dtype)


def class_token(x, p):
    first = jnp.broadcast_to(p["weight"].astype(x.dtype), (len(x), 1, x.shape[-1]))
    return jnp.concatenate([first, x], 1)  # (B, T, F) -> (B, 1 + T, F)


def dropout(x, layer, key):
    keep = 1.0 - layer["attributes"]["rate"]
    return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0)


def lstm(x, p, style):
    """(B, T, F) -> (B, T, H). The input's product is one for all words; gates in order i f g o."""
    # (T, B, 4H)
    from_input = biased(dot(x.swapaxes(0, 1), p["weight_input"], style), p["bias"])
    weight = p["weight_hidden"].astype(x.dtype)

    def cell(carry, from_word):
        hidden, memory = carry  # (B, H) each
        i, f, g, o = jnp.split(from_word + dot(hidden, weight, style), 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros((len(x), weight.shape[0]), x.dtype)
    _, outputs = lax.scan(cell, (start, start), from_input, unroll=style.unroll)
    return outputs.swapaxes(0, 1)


def biased(y, bias):
    """Add a bias in float32. In bf16 its gradient would be a bf16 sum, 2 % off on a CPU."""
    return (y.astype(jnp.float32) + bias).astype(y.dtype)


def cross_entropy(logits, targets):
    """Mean over all labels: logits (B, K) or (B, T, K), targets (B) or (B, T)."""
    logits = logits.astype(jnp.float32)
    # Compares instead of gathering, whose gradient scatters into as many zeros as logits.
    chosen = targets[..., None] == lax.broadcasted_iota(targets.dtype, logits.shape, targets.ndim)
    return (jax.nn.logsumexp(logits, -1) - jnp.where(chosen, logits, 0).sum(-1)).mean()


# Operation -> shapes of its parameters, from the attributes and the input's canonical shape.
PARAMETERS = {
    "dense": lambda a, shape: {"weight": (shape[-1], a["units"]), "bias": (a["units"],)},
    "linear": lambda a, shape: {"weight": (shape[-1], a["units"])},
    "conv2d": lambda a, shape: {
        "weight": (a["kernel"], a["kernel"], shape[0] // a["groups"], a["filters"]),
        **({"bias": (a["filters"],)} if a["bias"] else {})},
    # An image's channels come first, a token's features last.
    "batch_norm": lambda a, shape: {"scale": shape[:1], "shift": shape[:1]},
    "layer_norm": lambda a, shape: {"scale": shape[-1:], "shift": shape[-1:]},
    "rms_norm": lambda a, shape: {"scale": shape[-1:]},
    "positions": lambda a, shape: {"weight": shape},
    "class_token": lambda a, shape: {"weight": shape[-1:]},
    "embedding": lambda a, shape: {"weight": (a["vocabulary"], a["units"])},
    "lstm": lambda a, shape: {"weight_input": (shape[-1], 4 * a["units"]),
                              "weight_hidden": (a["units"], 4 * a["units"]),
                              "bias": (4 * a["units"],)},
}


def initial_parameters(network):
    """Parameters of each layer as its operation needs them, all zero until `load`."""
    shapes = {"input": network["input_shape"]}
    parameters = {}
    for layer in network["layers"]:
        shapes[layer["name"]] = layer["output_shape"]
        if layer["op"] in PARAMETERS:
            needed = PARAMETERS[layer["op"]](layer["attributes"], shapes[layer["inputs"][0]])
            parameters[layer["name"]] = {name: np.zeros(shape, np.float32)
                                         for name, shape in needed.items()}
    return parameters


def initial_statistics(network):
    """Running averages of each batch norm before the first step."""
    return {layer["name"]: {"mean": np.zeros(layer["output_shape"][0], np.float32),
                            "variance": np.ones(layer["output_shape"][0], np.float32)}
            for layer in network["layers"] if layer["op"] == "batch_norm"}
