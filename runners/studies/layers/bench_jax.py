"""The layers study in JAX: compiled functions of `jax.lax` and `jax.nn`."""

import jax
import jax.numpy as jnp
from jax import lax

from runners.protocol import Unsupported
from runners.studies.layers import bench, reference

# (dimensions, layout): orders of input, weight and output.
CONVOLUTIONS = {
    (3, "nchw"): ("NCH", "OIH", "NCH"), (3, "nhwc"): ("NHC", "HIO", "NHC"),
    (5, "nchw"): ("NCDHW", "OIDHW", "NCDHW"), (5, "nhwc"): ("NDHWC", "DHWIO", "NDHWC"),
}


def conv(t, p):
    x, weight = t["x"], t["weight"]
    return lax.conv_general_dilated(x, weight, (1,) * (x.ndim - 2), "SAME",
                                    dimension_numbers=CONVOLUTIONS[x.ndim, p["layout"]])


def windows(x, start, reduce, p):
    """Reduce each window of an image."""
    size, stride = ((1, 1, p[key], p[key]) if p["layout"] == "nchw" else (1, p[key], p[key], 1)
                    for key in ("kernel", "stride"))
    return lax.reduce_window(x, start, reduce, size, stride, "VALID")


def lrn(t, p):
    x, n = t["x"], reference.LRN_SIZE
    size = (1, n, 1, 1) if p["layout"] == "nchw" else (1, 1, 1, n)
    total = lax.reduce_window(x * x, 0.0, lax.add, size, (1,) * 4, "SAME")
    return x * (reference.LRN_K + reference.LRN_ALPHA / n * total) ** -reference.LRN_BETA


def dropout(t, p):
    kept = jax.random.bernoulli(jax.random.PRNGKey(0), 1 - p["rate"], t["x"].shape)
    return jnp.where(kept, t["x"] / (1 - p["rate"]), 0)


def batch_norm(t, p):
    axes, shape = ((0, 2, 3), (-1, 1, 1)) if p["layout"] == "nchw" else ((0, 1, 2), (-1,))
    x = t["x"].astype(jnp.float32)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    normal = (x - mean) * lax.rsqrt(variance + reference.EPSILON)
    return (normal * t["scale"].reshape(shape) + t["shift"].reshape(shape)).astype(t["x"].dtype)


def ctc(t, p):
    raise Unsupported("JAX has no CTC loss of its own (optax has one, which is another package)")


def hierarchical_softmax(t, p):
    side, rows = len(t["clusters"]), jnp.arange(len(t["x"]))
    group, word = t["labels"] // side, t["labels"] % side
    outer = jax.nn.log_softmax(t["x"] @ t["clusters"].T)
    inner = jax.nn.log_softmax(jnp.einsum("bf,bnf->bn", t["x"], t["words"][group]))
    return -outer[rows, group] - inner[rows, word]


OPERATIONS = {
    "conv1d": conv, "conv3d": conv,
    "max_pool": lambda t, p: windows(t["x"], -jnp.inf, lax.max, p),
    "avg_pool": lambda t, p: windows(t["x"], 0.0, lax.add, p) / p["kernel"] ** 2,
    "lp_pool": lambda t, p: jnp.sqrt(windows(t["x"] ** 2, 0.0, lax.add, p)),
    "lrn": lrn, "dropout": dropout, "batch_norm": batch_norm, "ctc": ctc,
    "softmax": lambda t, p: jax.nn.softmax(t["x"]),
    "embedding": lambda t, p: t["table"][t["x"]], "hierarchical_softmax": hierarchical_softmax,
}


class Bench(bench.LayerBench):
    LIBRARY, OPERATIONS = jax, OPERATIONS
    WEIGHT_LAST = ("nhwc",)

    def __init__(self, task):
        super().__init__(task)
        # Otherwise fp32 products are TF32 on a GPU.
        jax.config.update("jax_default_matmul_precision", "highest")
        self.device = jax.devices("gpu" if task.device == "cuda" else "cpu")[0]

    def place(self, name, array, point):
        return jax.device_put(array, self.device)

    def layer(self, operation, tensors, names, upstream):
        rest = {name: tensors[name] for name in tensors if name not in names}
        wanted = {name: tensors[name] for name in names}

        def gradients(wanted, rest, upstream):
            output, pull = jax.vjp(lambda given: operation({**given, **rest}), wanted)
            return output, pull(upstream)[0]

        forward = jax.jit(lambda wanted, rest: operation({**wanted, **rest}))
        backward = jax.jit(gradients)
        return lambda: forward(wanted, rest), lambda: backward(wanted, rest, upstream)

    def wait(self, result):
        jax.block_until_ready(result)

    def numpy(self, tensor):
        return jax.device_get(tensor)
