"""The layers study in MXNet 1.9.1: operators of `mx.nd`, recorded by autograd."""

import os

# MXNet reads it once, as it is loaded; the driver sets it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import mxnet as mx
from mxnet import autograd

from runners.protocol import Unsupported
from runners.studies.layers import bench, reference


def order(t, p):
    return bench.FORMATS[p["layout"], t["x"].ndim]


def conv(t, p):
    # Its documentation of `layout` says so.
    if p["layout"] == "nhwc" and t["x"].context.device_type == "cpu":
        raise Unsupported("MXNet's Convolution has channels-last layouts on GPUs only")
    space = t["x"].ndim - 2
    return mx.nd.Convolution(t["x"], t["weight"], no_bias=True, kernel=(p["kernel"],) * space,
                             pad=(p["kernel"] // 2,) * space, num_filter=p["channels"],
                             layout=order(t, p))


def pooled(kind):
    def pool(t, p):
        return mx.nd.Pooling(t["x"], kernel=(p["kernel"],) * 2, stride=(p["stride"],) * 2,
                             pool_type=kind, p_value=2, layout=order(t, p))
    return pool


def lrn(t, p):
    if p["layout"] == "nhwc":
        raise Unsupported("MXNet's LRN normalises over the second axis only")
    return mx.nd.LRN(t["x"], nsize=reference.LRN_SIZE, alpha=reference.LRN_ALPHA,
                     beta=reference.LRN_BETA, knorm=reference.LRN_K)


def batch_norm(t, p):
    mean, variance = mx.nd.zeros_like(t["shift"]), mx.nd.ones_like(t["shift"])
    return mx.nd.BatchNorm(t["x"], t["scale"], t["shift"], mean, variance, eps=reference.EPSILON,
                           fix_gamma=False, axis=1 if p["layout"] == "nchw" else 3)


def hierarchical_softmax(t, p):
    side = t["clusters"].shape[0]
    group, word = mx.nd.floor(t["labels"] / side), t["labels"] % side
    inner = mx.nd.batch_dot(t["words"].take(group), t["x"].expand_dims(2)).squeeze(axis=2)
    outer = mx.nd.dot(t["x"], t["clusters"], transpose_b=True)
    pick, log_softmax = mx.nd.pick, mx.nd.log_softmax
    return -pick(log_softmax(outer), group) - pick(log_softmax(inner), word)


OPERATIONS = {
    "conv1d": conv, "conv3d": conv, "lrn": lrn,
    "max_pool": pooled("max"), "avg_pool": pooled("avg"), "lp_pool": pooled("lp"),
    "dropout": lambda t, p: mx.nd.Dropout(t["x"], p=p["rate"], mode="always"),
    "softmax": lambda t, p: mx.nd.softmax(t["x"]),
    "batch_norm": batch_norm,
    "ctc": lambda t, p: mx.nd.ctc_loss(t["x"], t["labels"], blank_label="first"),
    "embedding": lambda t, p: mx.nd.Embedding(t["x"], t["table"], input_dim=p["classes"],
                                              output_dim=p["channels"]),
    "hierarchical_softmax": hierarchical_softmax,
}


class Bench(bench.LayerBench):
    LIBRARY, OPERATIONS = mx, OPERATIONS

    def __init__(self, task):
        super().__init__(task)
        self.context = mx.gpu() if task.device == "cuda" else mx.cpu()

    def place(self, name, array, point):
        # Labels are floats too.
        kind = array.dtype if array.dtype.kind == "f" else "float32"
        return mx.nd.array(array, self.context, dtype=kind)

    def layer(self, operation, tensors, names, upstream):
        for name in names:
            tensors[name].attach_grad()

        def forward():
            with autograd.train_mode():
                return operation(tensors)

        def backward():
            with autograd.record():
                output = operation(tensors)
            output.backward(upstream)
            return output, {name: tensors[name].grad for name in names}

        return forward, backward

    def wait(self, result):
        mx.nd.waitall()

    def numpy(self, tensor):
        return tensor.asnumpy()
