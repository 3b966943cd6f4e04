"""The layers study in TensorFlow: `tf.nn` in a `tf.function`; weights are (*kernel, in, out)."""

import tensorflow as tf

from runners.protocol import Unsupported
from runners.studies.layers import bench, reference


def order(t, p):
    return bench.FORMATS[p["layout"], len(t["x"].shape)]


def pooled(x, kind, t, p):
    return kind(x, p["kernel"], p["stride"], "VALID", data_format=order(t, p))


def lrn(t, p):
    if p["layout"] != "nhwc":
        raise Unsupported("tf.nn.local_response_normalization normalises over the last axis only")
    size = reference.LRN_SIZE
    return tf.nn.local_response_normalization(t["x"], size // 2, reference.LRN_K,
                                              reference.LRN_ALPHA / size, reference.LRN_BETA)


def batch_norm(t, p):
    return tf.compat.v1.nn.fused_batch_norm(
        t["x"], t["scale"], t["shift"], epsilon=reference.EPSILON, data_format=order(t, p),
        is_training=True)[0]


def ctc(t, p):
    length, batch, _ = t["x"].shape
    lengths = tf.fill([batch], t["labels"].shape[1]), tf.fill([batch], length)
    return tf.nn.ctc_loss(t["labels"], t["x"], *lengths, blank_index=0)


def hierarchical_softmax(t, p):
    side = t["clusters"].shape[0]
    group, word = t["labels"] // side, t["labels"] % side
    inner = tf.einsum("bf,bnf->bn", t["x"], tf.gather(t["words"], group))
    outer = tf.matmul(t["x"], t["clusters"], transpose_b=True)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits
    return loss(group, outer) + loss(word, inner)


OPERATIONS = {
    "conv1d": lambda t, p: tf.nn.conv1d(t["x"], t["weight"], 1, "SAME", data_format=order(t, p)),
    "conv3d": lambda t, p: tf.nn.conv3d(t["x"], t["weight"], [1] * 5, "SAME",
                                        data_format=order(t, p)),
    "max_pool": lambda t, p: pooled(t["x"], tf.nn.max_pool2d, t, p),
    "avg_pool": lambda t, p: pooled(t["x"], tf.nn.avg_pool2d, t, p),
    "lp_pool": lambda t, p: p["kernel"] * tf.sqrt(pooled(t["x"] ** 2, tf.nn.avg_pool2d, t, p)),
    "lrn": lrn,
    "dropout": lambda t, p: tf.nn.dropout(t["x"], p["rate"]),
    "softmax": lambda t, p: tf.nn.softmax(t["x"]),
    "batch_norm": batch_norm, "ctc": ctc,
    "embedding": lambda t, p: tf.nn.embedding_lookup(t["table"], t["x"]),
    "hierarchical_softmax": hierarchical_softmax,
}


class Bench(bench.LayerBench):
    LIBRARY, OPERATIONS = tf, OPERATIONS
    WEIGHT_LAST = ("nchw", "nhwc")

    def __init__(self, task):
        super().__init__(task)
        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(task.threads)
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        self.device = "/GPU:0" if task.device == "cuda" else "/CPU:0"

    def place(self, name, array, point):
        with tf.device(self.device):
            return tf.constant(array)

    def layer(self, operation, tensors, names, upstream):
        # Autograph has nothing to rewrite, and would wrap what a layer raises.
        @tf.function(autograph=False)
        def forward(tensors):
            return operation(tensors)

        @tf.function(autograph=False)
        def backward(tensors, upstream):
            with tf.GradientTape() as tape:
                tape.watch([tensors[name] for name in names])
                output = operation(tensors)
            gradients = tape.gradient(output, [tensors[name] for name in names], upstream)
            # An embedding's too, as in the other frameworks.
            dense = map(tf.convert_to_tensor, gradients)
            return output, dict(zip(names, dense, strict=True))

        return lambda: forward(tensors), lambda: backward(tensors, upstream)

    def wait(self, result):
        tf.test.experimental.sync_devices()
