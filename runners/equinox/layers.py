"""The network as an Equinox module of one sample: `eqx.nn`'s layers by name, images C H W.

`jax.vmap` makes it one of a batch, as Equinox's examples do.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.protocol import Unsupported, lowered

# A NumPy key, because JAX's would start its CPU client before the runner has set its threads.
# All weights come from the driver.
KEY = np.zeros(2, np.uint32)


class Net(eqx.Module):
    """The network's layers by name, run in their order on one sample."""

    parts: dict
    wiring: tuple = eqx.field(static=True)

    def __init__(self, network):
        shapes = {"input": network["input_shape"]}
        self.parts = {}
        wiring = []
        for layer in network["layers"]:
            name, inputs = layer["name"], layer["inputs"]
            self.parts[name] = lowered(LAYERS, layer)(layer["attributes"], shapes[inputs[0]])
            wiring.append((name, layer["op"], tuple(inputs), layer["attributes"].get("tied")))
            shapes[name] = layer["output_shape"]
        self.wiring = tuple(wiring)

    def outputs(self, x, state, key):
        """Return every layer's output, and batch norm's new state; `key` is for dropout alone."""
        outputs = {"input": x}
        for number, (name, op, inputs, tied) in enumerate(self.wiring):
            part, values = self.parts[name], [outputs[source] for source in inputs]
            if op == "batch_norm":
                # It computes in float32, like its parameters.
                y, state = part(values[0].astype(jnp.float32), state)
                outputs[name] = y.astype(values[0].dtype)
            elif op == "dropout":
                outputs[name] = part(*values, key=jax.random.fold_in(key, number))
            elif tied:
                outputs[name] = values[0] @ self.parts[tied].weight.T
            elif op in BY_TOKEN and values[0].ndim == (1 if op == "embedding" else 2):
                outputs[name] = jax.vmap(part)(*values)
            else:
                outputs[name] = part(*values)
        return outputs, state


class LSTM(eqx.Module):
    """Equinox's cell in a scan, as its documentation shows."""

    cell: eqx.nn.LSTMCell

    def __call__(self, x):
        zero = jnp.zeros(self.cell.hidden_size, x.dtype)

        def step(state, word):
            state = self.cell(word, state)
            return state, state[0]

        return lax.scan(step, (zero, zero), x)[1]


class Attention(eqx.Module):
    """JAX's function: `eqx.nn.MultiheadAttention` has its projections inside."""

    heads: tuple = eqx.field(static=True)
    causal: bool = eqx.field(static=True)

    def __call__(self, *parts):
        # (T, 3 H D), or (T, H D) and twice (T, G D) -> (T, H D)
        parts = parts if len(parts) == 3 else jnp.split(parts[0], 3, -1)
        q, k, v = (part.reshape(len(part), heads, -1)
                   for part, heads in zip(parts, self.heads, strict=True))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=self.causal)
        return y.reshape(len(y), -1)


class Rotary(eqx.Module):
    """Equinox's `RotaryPositionalEmbedding` on each head: its pairs are i and i + D/2, too."""

    heads: int = eqx.field(static=True)
    embedding: eqx.nn.RotaryPositionalEmbedding

    def __call__(self, x):
        split = x.reshape(len(x), self.heads, -1)
        return jax.vmap(self.embedding, 1, 1)(split).reshape(x.shape)


class Table(eqx.Module):
    """A trained tensor and what is done with it: positions, or the class token."""

    weight: jax.Array
    apply: object = eqx.field(static=True)

    def __call__(self, x):
        return self.apply(x, self.weight)


def plus(x, weight):
    return (x + weight).astype(x.dtype)


def before(x, weight):
    return jnp.concatenate([weight[None].astype(x.dtype), x])  # (T, F) -> (1 + T, F)


def conv(a, shape):
    return eqx.nn.Conv2d(shape[0], a["filters"], a["kernel"], a["stride"], a["padding"],
                         groups=a["groups"], use_bias=a["bias"], key=KEY)


def rotary(a, shape):
    width = shape[-1] // a["heads"]
    return Rotary(a["heads"], eqx.nn.RotaryPositionalEmbedding(width, a["base"]))


def lrn(a, shape):
    raise Unsupported("lrn: Equinox has no local response normalisation")


def attention(a, shape):
    few = a.get("groups", a["heads"])
    return Attention((a["heads"], few, few), a["causal"])


# Made for one token, as Equinox's layers are for one sample.
BY_TOKEN = ("dense", "linear", "embedding", "layer_norm", "rms_norm")
# Operation -> module or function, from the attributes and the input's shape.
LAYERS = {
    "dense": lambda a, shape: eqx.nn.Linear(shape[-1], a["units"], key=KEY),
    "linear": lambda a, shape: eqx.nn.Linear(shape[-1], a["units"], use_bias=False, key=KEY),
    "conv2d": conv,
    "max_pool": lambda a, shape: eqx.nn.MaxPool2d(a["kernel"], a["stride"], a["padding"],
                                                  use_ceil=a["ceil"]),
    "avg_pool": lambda a, shape: eqx.nn.AvgPool2d(a["kernel"], a["stride"]),
    "global_avg_pool": lambda a, shape: lambda x: x.mean((1, 2)),
    "relu": lambda a, shape: jax.nn.relu,
    "sigmoid": lambda a, shape: jax.nn.sigmoid,
    "dropout": lambda a, shape: eqx.nn.Dropout(a["rate"]),
    "batch_norm": lambda a, shape: eqx.nn.BatchNorm(
        shape[0], "batch", eps=a["epsilon"], momentum=a["running"], mode="batch"),
    "lrn": lrn,
    "concat": lambda a, shape: lambda *images: jnp.concatenate(images),
    "add": lambda a, shape: jnp.add,
    "flatten": lambda a, shape: jnp.ravel,
    "subsample": lambda a, shape: lambda x: x[:, ::a["stride"], ::a["stride"]],
    "pad_channels": lambda a, shape: lambda x: jnp.pad(x, [(0, a["extra"]), (0, 0), (0, 0)]),
    "embedding": lambda a, shape: eqx.nn.Embedding(a["vocabulary"], a["units"], key=KEY),
    "lstm": lambda a, shape: LSTM(eqx.nn.LSTMCell(shape[-1], a["units"], key=KEY)),
    "layer_norm": lambda a, shape: eqx.nn.LayerNorm(shape[-1], eps=a["epsilon"]),
    "rms_norm": lambda a, shape: eqx.nn.RMSNorm(shape[-1], eps=a["epsilon"], use_bias=False),
    "gelu": lambda a, shape: lambda x: jax.nn.gelu(x, approximate=a["tanh"]),
    "attention": attention,
    "grouped_attention": attention,
    "rotary": rotary,
    "swiglu": lambda a, shape: lambda gate, value: jax.nn.silu(gate) * value,
    "positions": lambda a, shape: Table(jnp.zeros(tuple(shape)), plus),
    "tokens": lambda a, shape: lambda x: x.reshape(len(x), -1).T,  # (C, H, W) -> (H W, C)
    "class_token": lambda a, shape: Table(jnp.zeros(shape[-1]), before),
    "first_token": lambda a, shape: lambda x: x[0],
    # The embedding's table.
    "tied_dense": lambda a, shape: None,
}


def output_shapes(model, state, network):
    """Shapes that the modules really give, without the batch, by tracing."""
    kind = jnp.int32 if network["vocabulary"] else jnp.float32
    one = jax.ShapeDtypeStruct((2, *network["input_shape"]), kind)
    every = jax.vmap(lambda x, state, key: model.outputs(x, state, key)[0], axis_name="batch",
                     in_axes=(0, None, None))
    outputs = eqx.filter_eval_shape(every, one, state, KEY)
    return {name: np.shape(output)[1:] for name, output in outputs.items()}
