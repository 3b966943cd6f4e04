"""The layers study in PaddlePaddle: eager functions of `paddle.nn.functional`."""

import paddle
import paddle.nn.functional as F

from runners.studies.layers import bench, reference


def order(t, p):
    # One dimension is a length here.
    return bench.FORMATS[p["layout"], t["x"].ndim].replace("W", "L" if t["x"].ndim == 3 else "W")


def pooled(kind, t, p, *power):
    return kind(t["x"], *power, p["kernel"], p["stride"], data_format=order(t, p))


def lrn(t, p):
    return F.local_response_norm(t["x"], reference.LRN_SIZE, reference.LRN_ALPHA,
                                 reference.LRN_BETA, reference.LRN_K, data_format=order(t, p))


def batch_norm(t, p):
    mean, variance = paddle.zeros_like(t["shift"]), paddle.ones_like(t["shift"])
    return F.batch_norm(t["x"], mean, variance, t["scale"], t["shift"], training=True,
                        epsilon=reference.EPSILON, data_format=order(t, p))


def ctc(t, p):
    length, batch = t["x"].shape[:2]
    lengths = (paddle.full([batch], size, "int64") for size in (length, t["labels"].shape[1]))
    # It takes logits.
    return F.ctc_loss(t["x"], t["labels"], *lengths, reduction="none")


def hierarchical_softmax(t, p):
    side = t["clusters"].shape[0]
    group, word = t["labels"] // side, t["labels"] % side
    inner = paddle.bmm(paddle.gather(t["words"], group), t["x"].unsqueeze(2)).squeeze(2)
    outer = paddle.matmul(t["x"], t["clusters"], transpose_y=True)
    return (F.cross_entropy(outer, group, reduction="none")
            + F.cross_entropy(inner, word, reduction="none"))


OPERATIONS = {
    "conv1d": lambda t, p: F.conv1d(t["x"], t["weight"], padding=p["kernel"] // 2,
                                    data_format=order(t, p)),
    "conv3d": lambda t, p: F.conv3d(t["x"], t["weight"], padding=p["kernel"] // 2,
                                    data_format=order(t, p)),
    "max_pool": lambda t, p: pooled(F.max_pool2d, t, p),
    "avg_pool": lambda t, p: pooled(F.avg_pool2d, t, p),
    "lp_pool": lambda t, p: pooled(F.lp_pool2d, t, p, 2.0),
    "lrn": lrn,
    "dropout": lambda t, p: F.dropout(t["x"], p["rate"]),
    "softmax": lambda t, p: F.softmax(t["x"]),
    "batch_norm": batch_norm, "ctc": ctc,
    "embedding": lambda t, p: F.embedding(t["x"], t["table"]),
    "hierarchical_softmax": hierarchical_softmax,
}


class Bench(bench.LayerBench):
    LIBRARY, OPERATIONS = paddle, OPERATIONS

    def __init__(self, task):
        super().__init__(task)
        paddle.set_device("gpu" if task.device == "cuda" else "cpu")

    def place(self, name, array, point):
        return paddle.to_tensor(array)

    def layer(self, operation, tensors, names, upstream):
        for name in names:
            tensors[name].stop_gradient = False

        def forward():
            with paddle.no_grad():
                return operation(tensors)

        def backward():
            output = operation(tensors)
            seed = upstream.reshape(output.shape)
            gradients = paddle.grad([output], [tensors[name] for name in names], [seed])
            return output.reshape(upstream.shape), dict(zip(names, gradients, strict=True))

        return forward, backward

    def wait(self, result):
        # On a CPU a function returns when it is done.
        if self.task.device == "cuda":
            paddle.device.synchronize()
