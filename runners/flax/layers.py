"""The network as a Flax module: NNX's own layers by name, images N H W C."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from runners.protocol import Unsupported, lowered

# `load` brings the weights.
ZEROS = {"kernel_init": nnx.initializers.zeros_init()}


class Net(nnx.Module):
    """The network's layers as attributes of their names, run in their order."""

    def __init__(self, network, dtype, seed):
        rngs = nnx.Rngs(seed)
        self.wiring = nnx.static(tuple(
            (layer["name"], tuple(layer["inputs"]), layer["attributes"].get("tied"))
            for layer in network["layers"]))
        self.dtype = dtype
        shapes = {"input": network["input_shape"]}
        for layer in network["layers"]:
            options = {"dtype": dtype, "rngs": rngs}
            make = lowered(LAYERS, layer)
            setattr(self, layer["name"], make(layer["attributes"], shapes[layer["inputs"][0]],
                                              options))
            shapes[layer["name"]] = layer["output_shape"]

    def __call__(self, x):
        return self.outputs(x)[self.wiring[-1][0]]

    def outputs(self, x):
        outputs = {"input": x if jnp.issubdtype(x.dtype, jnp.integer) else x.astype(self.dtype)}
        for name, inputs, tied in self.wiring:
            part = getattr(self, tied).attend if tied else getattr(self, name)
            outputs[name] = part(*(outputs[source] for source in inputs))
        return outputs


class Attention(nnx.Module):
    """Flax's function of queries, keys and values; shared heads are repeated."""

    def __init__(self, a, causal):
        self.heads, self.groups, self.causal = a["heads"], a.get("groups", a["heads"]), causal

    def __call__(self, *parts):
        # (B, T, 3 H D), or (B, T, H D) and twice (B, T, G D) -> (B, T, H D)
        parts = parts if len(parts) == 3 else jnp.split(parts[0], 3, -1)
        counts = self.heads, self.groups, self.groups
        q, k, v = (jnp.repeat(split_heads(part, heads), self.heads // heads, 2)
                   for part, heads in zip(parts, counts, strict=True))
        y = nnx.dot_product_attention(q, k, v, is_causal=self.causal)
        return y.reshape(*y.shape[:2], -1)


class Rotary(nnx.Module):
    def __init__(self, a):
        self.heads, self.base = a["heads"], a["base"]

    def __call__(self, x):
        left, right = jnp.split(split_heads(x, self.heads).astype(jnp.float32), 2, -1)
        half = left.shape[-1]
        angles = np.outer(np.arange(x.shape[1]), self.base ** (-np.arange(half) / half))
        cos, sin = (f(angles).astype(np.float32)[:, None] for f in (np.cos, np.sin))  # (T, 1, D/2)
        turned = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)
        return turned.reshape(x.shape).astype(x.dtype)


class Positions(nnx.Module):
    def __init__(self, shape):
        self.weight = nnx.Param(jnp.zeros(shape))

    def __call__(self, x):
        return (x + self.weight[...]).astype(x.dtype)


class ClassToken(nnx.Module):
    def __init__(self, width):
        self.weight = nnx.Param(jnp.zeros(width))

    def __call__(self, x):
        first = jnp.broadcast_to(self.weight[...].astype(x.dtype), (len(x), 1, x.shape[-1]))
        return jnp.concatenate([first, x], 1)  # (B, T, F) -> (B, 1 + T, F)


def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1)


def conv(a, shape, options):
    return nnx.Conv(shape[0], a["filters"], (a["kernel"],) * 2, (a["stride"],) * 2,
                    padding=a["padding"], feature_group_count=a["groups"], use_bias=a["bias"],
                    **ZEROS, **options)


def max_pool(a, shape, options):
    kernel, stride, padding = a["kernel"], a["stride"], a["padding"]
    # Room for a last window that begins in the image.
    room = [(kernel - size - 2 * padding) % stride if a["ceil"] else 0 for size in shape[1:]]
    sides = [(padding, padding + more) for more in room]
    return lambda x: nnx.max_pool(x, (kernel,) * 2, (stride,) * 2, sides)


def lstm(a, shape, options):
    return nnx.RNN(nnx.OptimizedLSTMCell(
        shape[-1], a["units"], recurrent_kernel_init=ZEROS["kernel_init"], **ZEROS, **options))


def lrn(a, shape, options):
    raise Unsupported("lrn: Flax has no local response normalisation")


# Operation -> module or function, from the attributes, the input's shape without the batch, and
# the options of NNX's layers.
LAYERS = {
    "dense": lambda a, shape, options: nnx.Linear(shape[-1], a["units"], **ZEROS, **options),
    "linear": lambda a, shape, options: nnx.Linear(shape[-1], a["units"], use_bias=False,
                                                   **ZEROS, **options),
    "conv2d": conv,
    "max_pool": max_pool,
    "avg_pool": lambda a, shape, options: (
        lambda x: nnx.avg_pool(x, (a["kernel"],) * 2, (a["stride"],) * 2)),
    "global_avg_pool": lambda a, shape, options: lambda x: x.mean((1, 2)),
    "relu": lambda a, shape, options: nnx.relu,
    "sigmoid": lambda a, shape, options: nnx.sigmoid,
    "dropout": lambda a, shape, options: nnx.Dropout(a["rate"], rngs=options["rngs"]),
    "batch_norm": lambda a, shape, options: nnx.BatchNorm(
        shape[0], momentum=a["running"], epsilon=a["epsilon"], **options),
    "lrn": lrn,
    "concat": lambda a, shape, options: lambda *images: jnp.concatenate(images, 3),
    "add": lambda a, shape, options: jnp.add,
    # The network's features are in the order C H W.
    "flatten": lambda a, shape, options: lambda x: jnp.moveaxis(x, 3, 1).reshape(len(x), -1),
    "subsample": lambda a, shape, options: lambda x: x[:, ::a["stride"], ::a["stride"], :],
    "pad_channels": lambda a, shape, options: (
        lambda x: jnp.pad(x, [(0, 0), (0, 0), (0, 0), (0, a["extra"])])),
    "embedding": lambda a, shape, options: nnx.Embed(
        a["vocabulary"], a["units"], embedding_init=ZEROS["kernel_init"], **options),
    "lstm": lstm,
    "layer_norm": lambda a, shape, options: nnx.LayerNorm(shape[-1], epsilon=a["epsilon"],
                                                          **options),
    "rms_norm": lambda a, shape, options: nnx.RMSNorm(shape[-1], epsilon=a["epsilon"], **options),
    "gelu": lambda a, shape, options: lambda x: nnx.gelu(x, approximate=a["tanh"]),
    "attention": lambda a, shape, options: Attention(a, a["causal"]),
    "grouped_attention": lambda a, shape, options: Attention(a, a["causal"]),
    "rotary": lambda a, shape, options: Rotary(a),
    "swiglu": lambda a, shape, options: lambda gate, value: nnx.silu(gate) * value,
    "positions": lambda a, shape, options: Positions(tuple(shape)),
    "tokens": lambda a, shape, options: lambda x: x.reshape(len(x), -1, x.shape[-1]),
    "class_token": lambda a, shape, options: ClassToken(shape[-1]),
    "first_token": lambda a, shape, options: lambda x: x[:, 0],
    # The embedding's own `attend`.
    "tied_dense": lambda a, shape, options: None,
}


def output_shapes(model, network):
    """Shapes that the modules really give, canonical and without the batch, by tracing."""
    shape = network["input_shape"]
    shape = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    kind = jnp.int32 if network["vocabulary"] else jnp.float32
    graph, state = nnx.split(model)
    outputs = jax.eval_shape(lambda state, x: nnx.merge(graph, state).outputs(x), state,
                             jax.ShapeDtypeStruct((2, *shape), kind))
    return {name: tuple(output.shape[axis] for axis in (3, 1, 2)) if output.ndim == 4
            else output.shape[1:] for name, output in outputs.items()}
