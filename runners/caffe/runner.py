"""Caffe: a net written with `caffe.NetSpec`, trained by `caffe.SGDSolver`, as in BVLC's notebooks.

A `MemoryData` layer reads NumPy memory where it lies and goes round the ring by itself, so no step
copies its batch. Words run time-major (T, B), as Caffe's LSTM wants them: batches are turned once,
in `feed`. Gates are i f o g (g is canonical i f g o's third). On the CPU only matrix products have
threads, OpenBLAS's; all of Caffe's own loops run on one.
"""

import ctypes
import tempfile
from collections import Counter
from itertools import pairwise

import caffe
import numpy as np
from caffe import layers as L
from caffe import params as P
from caffe.proto import caffe_pb2
from google.protobuf import text_format

from runners import protocol
from runners.protocol import Unsupported

# Our names of a layer's blobs, in Caffe's order.
BLOBS = {
    "dense": ("weight", "bias"), "conv2d": ("weight", "bias"), "batch_norm": ("scale", "shift"),
    "embedding": ("weight",), "lstm": ("weight_input", "bias", "weight_hidden"),
}
# i f g o to i f o g, and back.
GATES = [0, 1, 3, 2]
# Operations whose backward pass does not read their own output.
IN_PLACE_AFTER = ("dense", "conv2d", "batch_norm", "max_pool", "add")
TIERS = {
    "stock": [],
    "compiled": "Caffe runs its layers one by one and has no compiler",
    "tuned": "Caffe's guide to performance (performance_hardware.md) has clocks and ECC of "
             "NVIDIA's GPUs, nothing for a CPU",
    "uncompiled": "Caffe's stock is not compiled",
}


class Runner(protocol.Runner):
    # How many this runner has made.
    solvers = 0

    @staticmethod
    def describe():
        blas = openblas()
        blas.openblas_get_config.restype = ctypes.c_char_p
        return {"release": caffe.__version__, "device_name": protocol.processor_name(),
                "libraries": {"openblas": blas.openblas_get_config().decode()}}

    def __init__(self, task):
        refuse_what_is_missing(task)
        self.task = task
        self.words = bool(task.network["vocabulary"])
        # Caffe has no call for it.
        openblas().openblas_set_num_threads(task.threads)
        caffe.set_mode_cpu()
        self.proto = write_net(task)
        self.ring, self.position = None, 0
        self._make_solver()
        self.gates = {f"{layer['name']}.{name}" for layer in task.network["layers"]
                      if layer["op"] == "lstm" for name in layer["parameters"]}
        # Our batch norm is Caffe's Scale, which follows its BatchNorm.
        self.norms = {scale.name: norm.name for norm, scale in pairwise(self.proto.layer)
                      if norm.type == "BatchNorm"}
        self.blobs = parameter_blobs(task.network, self.proto, self.net)
        protocol.assert_network(task.network, self._output_shapes(),
                       {name: tuple(blob.shape) for name, blob in self.blobs.items()})

    def load(self, weights):
        # Python cannot reach the momentum in C++: only a new solver has none.
        if self.solver.iter:
            self._make_solver()
            self.blobs = parameter_blobs(self.task.network, self.proto, self.net)
        for name, blob in self.blobs.items():
            blob.data[...] = self._turn_gates(name, weights[name])
        for norm in self.norms.values():
            for blob in self.net.params[norm]:
                blob.data[...] = 0

    def feed(self, inputs, targets, residence):
        if self.words:
            # (N, B, T) -> (N, T, B)
            inputs, targets = inputs.swapaxes(1, 2), targets.swapaxes(1, 2)
        rows, image = rows_of(self.task)
        # Word numbers are floats, too.
        self.ring = (np.array(inputs, np.float32, order="C").reshape(len(inputs) * rows, *image),
                     np.array(targets, np.float32, order="C").reshape(len(inputs) * rows, 1, 1, 1))
        self.position = 0
        self._turn_ring(0)

    def step(self):
        self.solver.step(1)
        self.position += 1

    # solver.step returns when the parameters are updated.
    synchronize = staticmethod(protocol.nothing)

    def loss(self):
        return float(self.net.blobs["loss"].data)

    def parameters(self):
        return {name: self._turn_gates(name, blob.data) for name, blob in self.blobs.items()}

    def statistics(self):
        """Each step Caffe multiplies mean, variance and a count by the share kept and adds its own.

        So the count, (1 - kept^n) / (1 - kept), tells how much of the start is left.
        """
        statistics = {}
        for layer in self.task.network["layers"]:
            if layer["op"] == "batch_norm":
                mean, variance, count = (
                    blob.data.copy() for blob in self.net.params[self.norms[layer["name"]]])
                new = np.float32(1 - layer["attributes"]["running"])
                statistics[layer["name"] + ".mean"] = new * mean
                statistics[layer["name"] + ".variance"] = 1 - new * count + new * variance
        return statistics

    def _make_solver(self):
        # Frees the old one's memory first.
        self.net = self.solver = self.blobs = None
        settings = write_solver(self.task, self.proto)
        # A new solver would draw the dropout masks of the last one again.
        settings.random_seed += self.solvers
        self.solvers += 1
        with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
            file.write(text_format.MessageToString(settings))
            file.flush()
            self.solver = caffe.SGDSolver(file.name)
        self.net = self.solver.net
        if "going_on" in self.net.blobs:
            # The first word of a sequence starts from a state of zeros.
            self.net.blobs["going_on"].data[...] = 1
            self.net.blobs["going_on"].data[0] = 0
        if self.ring:
            self._turn_ring(self.position)

    def _turn_ring(self, position):
        """Let the next forward pass read batch `position` of the ring."""
        inputs, targets = self.ring
        self.net.set_input_arrays(inputs, targets)
        rows, _ = rows_of(self.task)
        for _ in range(position % (len(inputs) // rows)):
            self.net.forward(end="input")

    def _output_shapes(self):
        """Shapes of outputs without the batch: axis 1 of (T, B, F), elsewhere axis 0."""
        tops = {layer.name: layer.top[0] for layer in self.proto.layer}
        shapes = {}
        for layer in self.task.network["layers"]:
            shape = list(self.net.blobs[tops[layer["name"]]].shape)
            del shape[1 if self.words else 0]
            shapes[layer["name"]] = shape
        return shapes

    def _turn_gates(self, name, array):
        if name not in self.gates:
            return np.array(array)
        return array.reshape(4, -1)[GATES].reshape(array.shape)


def refuse_what_is_missing(task):
    protocol.settings_of(task, TIERS)
    if task.device != "cpu":
        raise Unsupported("Cannot use GPU in CPU-only Caffe: check mode. (Caffe's own error, of "
                          "the CPU_ONLY build; this runner has not been tried with a GPU build)")
    if task.precision != "fp32":
        raise Unsupported(f"precision {task.precision}: Caffe 1.0's blobs are float or double "
                          "(INSTANTIATE_CLASS), and Python's nets are float")
    if any(layer["op"].endswith("attention") for layer in task.network["layers"]):
        raise Unsupported("attention: no layer of Caffe 1.0 multiplies two blobs; its InnerProduct "
                          "multiplies by parameters alone")


def openblas():
    """The library that Caffe is linked with, not NumPy's own copy of another name."""
    return ctypes.CDLL("libopenblas.so.0")


def write_solver(task, net):
    """Caffe's update is V = momentum V + lr g, W = W - V: ours while lr is constant."""
    return caffe_pb2.SolverParameter(
        net_param=net, type="SGD", base_lr=task.network["learning_rate"], lr_policy="fixed",
        momentum=task.network["momentum"], weight_decay=0, max_iter=2**31 - 1, display=0,
        snapshot_after_train=False, random_seed=task.seed,
        solver_mode=caffe_pb2.SolverParameter.CPU)


def write_net(task):
    """The network as a NetParameter: our names for layers, Caffe's for helpers (BatchNorm1)."""
    network = task.network
    net = caffe.NetSpec()
    rows, (channels, height, width) = rows_of(task)
    net["input"], net["label"] = L.MemoryData(
        batch_size=rows, channels=channels, height=height, width=width, ntop=2)
    tops = {"input": net["input"]}
    labels = net["label"]
    if network["vocabulary"]:
        time_major = {"dim": [network["input_shape"][0], task.batch]}
        tops["input"] = net["words"] = L.Reshape(net["input"], shape=time_major)
        labels = net["word_labels"] = L.Reshape(net["label"], shape=time_major)
        net["going_on"] = L.Input(shape=time_major)
    operations = {layer["name"]: layer["op"] for layer in network["layers"]}
    readers = Counter(source for layer in network["layers"] for source in layer["inputs"])
    shapes = {"input": network["input_shape"]}
    for layer in network["layers"]:
        name, source = layer["name"], layer["inputs"][0]
        in_place = readers[source] == 1 and may_be_in_place(layer["op"], operations.get(source))
        inputs = [tops[each] for each in layer["inputs"]]
        shapes[name] = layer["output_shape"]
        inputs += second_bottom(layer, shapes[source], task.batch, net)
        # Dense layers read the last axis.
        attributes = dict(layer["attributes"], in_place=in_place, axis=len(shapes[source]))
        net[name] = tops[name] = protocol.lowered(LAYERS, layer)(inputs, attributes)
    net["loss"] = L.SoftmaxWithLoss(
        tops[name], labels, softmax_param={"axis": len(network["target_shape"]) + 1},
        loss_param={"normalization": P.Loss.VALID})
    return net.to_proto()


def rows_of(task):
    """The data layer's rows in one batch and the shape of each: images, vectors, or words."""
    shape = list(task.network["input_shape"])
    if task.network["vocabulary"]:
        return task.batch * shape[0], [1, 1, 1]
    return task.batch, (shape + [1, 1])[:3]


def may_be_in_place(op, before):
    """Caffe's examples write ReLU and dropout over an input that no other layer reads."""
    return before in IN_PLACE_AFTER or (op == "dropout" and before == "relu")


# Operation -> top, from the bottoms x and the attributes; `write_net` adds two.
LAYERS = {
    "dense": lambda x, a: L.InnerProduct(*x, num_output=a["units"], axis=a["axis"]),
    "conv2d": lambda x, a: L.Convolution(
        *x, num_output=a["filters"], kernel_size=a["kernel"], stride=a["stride"],
        pad=a["padding"], group=a["groups"], bias_term=a["bias"]),
    "max_pool": lambda x, a: pool(
        *x, P.Pooling.MAX, a["kernel"], a["stride"], a["padding"], ceil=a["ceil"]),
    "avg_pool": lambda x, a: pool(*x, P.Pooling.AVE, a["kernel"], a["stride"], a["padding"]),
    "subsample": lambda x, a: pool(*x, P.Pooling.MAX, 1, a["stride"], 0),
    "global_avg_pool": lambda x, a: L.Flatten(
        L.Pooling(*x, pool=P.Pooling.AVE, global_pooling=True)),
    "relu": lambda x, a: L.ReLU(*x, in_place=a["in_place"]),
    "sigmoid": lambda x, a: L.Sigmoid(*x, in_place=a["in_place"]),
    "dropout": lambda x, a: L.Dropout(*x, dropout_ratio=a["rate"], in_place=a["in_place"]),
    "batch_norm": lambda x, a: batch_norm(*x, a),
    "lrn": lambda x, a: L.LRN(*x, local_size=a["size"], alpha=a["alpha"], beta=a["beta"]),
    "concat": lambda x, a: L.Concat(*x, axis=1),
    "add": lambda x, a: L.Eltwise(*x, operation=P.Eltwise.SUM),
    "flatten": lambda x, a: L.Flatten(*x),
    "pad_channels": lambda x, a: L.Concat(*x, axis=1),
    "embedding": lambda x, a: L.Embed(
        *x, input_dim=a["vocabulary"], num_output=a["units"], bias_term=False),
    "lstm": lambda x, a: L.LSTM(*x, recurrent_param={"num_output": a["units"]}),
}


def second_bottom(layer, shape, batch, net):
    """Return a layer's second bottom: where a sequence goes on, channels of zeros, or none."""
    if layer["op"] == "lstm":
        return [net["going_on"]]
    if layer["op"] == "pad_channels":
        zeros = {"dim": [batch, layer["attributes"]["extra"], *shape[1:]]}
        return [L.DummyData(shape=zeros, data_filler={"type": "constant", "value": 0})]
    return []


def pool(x, method, kernel, stride, padding, ceil=False):
    """Caffe rounds up unless told otherwise, so that a part of a window is one, too."""
    return L.Pooling(x, pool=method, kernel_size=kernel, stride=stride, pad=padding,
                     ceil_mode=ceil)


def batch_norm(x, a):
    """Caffe's BatchNorm only normalises; the solver must leave its running statistics alone."""
    frozen = [{"lr_mult": 0}] * 3
    normalised = L.BatchNorm(x, eps=a["epsilon"], moving_average_fraction=a["running"],
                             use_global_stats=False, param=frozen, in_place=a["in_place"])
    return L.Scale(normalised, bias_term=True, in_place=True)


def parameter_blobs(network, proto, net):
    """Every blob that the solver trains (lr_mult is not 0), by our full name or else Caffe's."""
    names = {layer["name"]: BLOBS.get(layer["op"], ()) for layer in network["layers"]}
    multipliers = {layer.name: [spec.lr_mult for spec in layer.param] for layer in proto.layer}
    blobs = {}
    for layer, theirs in net.params.items():
        ours = names.get(layer, ())
        for number, blob in enumerate(theirs):
            if multipliers[layer][number:number + 1] != [0]:
                blobs[f"{layer}.{ours[number] if number < len(ours) else number}"] = blob
    return blobs
