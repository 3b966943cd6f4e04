"""MXNet 1.9.1. `stock` is Gluon's tutorial loop: a hybridized `HybridBlock` and `gluon.Trainer`.

`tuned` adds what MXNet's own pages advise: static shapes, a hybridized loss, words in the order T B
(the fused LSTM's own); on a GPU also cuDNN's fastest algorithms whatever their workspace, and
pinned host memory. The oneDNN subgraphs of its performance page are for inference:
`optimize_for(backend="MKLDNN")` trains nothing and says nothing. Several devices train as in
Gluon's tutorial: `split_and_load`, a loss and a backward pass on each, and a kvstore in the
trainer. Nodes meet at its parameter servers (`runners.mxnet.servers`). Python 3.6 syntax.
"""

import os

# MXNet reads it once, as it is loaded; the driver sets it for every CPU trial.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp
from mxnet.contrib.amp.lists import symbol_bf16
from mxnet.gluon import nn

from runners import protocol
from runners.mxnet import nodes
from runners.mxnet.layers import Net, trained_parameters
from runners.mxnet.profile import operators_of
from runners.protocol import Product, Unsupported

AMP = {"bf16": "bfloat16", "fp16": "float16"}
KVSTORES = ("local", "device", "nccl")
BETWEEN_NODES = ("dist_sync", "dist_device_sync")
# Fixed, so that an fp16 trajectory can be compared: amp's own scale adapts and skips steps.
LOSS_SCALE = 1024.0
# The precision that amp.init was called with in this process, at most one.
precisions = []


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        features = mx.runtime.Features()
        libraries = {name.lower(): features.is_enabled(name)
                     for name in ("MKLDNN", "BLAS_OPEN", "CUDA", "CUDNN")}
        return {"release": mx.__version__, "device_name": protocol.processor_name(),
                "libraries": libraries}

    def __init__(self, task):
        refuse_what_is_missing(task)
        self.task = task
        kind = mx.gpu if task.device == "cuda" else mx.cpu
        self.contexts = [kind(number) for number in range(task.devices // task.ranks)]
        self.settings = protocol.settings_of(task, tiers(task))
        self.time_first = "words in the order T B" in self.settings
        self.scale = LOSS_SCALE if task.precision == "fp16" else 1.0
        set_arithmetic(task)

        self.net = Net(task, "TNC" if self.time_first else "NTC")
        self.trained = trained_parameters(self.net, task.network)
        shapes = {name: parameter.shape for name, parameter in self.trained.items()}
        protocol.assert_network(task.network, self._output_shapes(), shapes)
        self.net.initialize(mx.init.Zero(), ctx=self.contexts)
        self.loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
        static = "static shapes" in self.settings
        self.net.hybridize(static_alloc=True, static_shape=static)
        if static:
            self.loss_function.hybridize(static_alloc=True, static_shape=True)
        # Gluon's default; it makes one only where there are several devices.
        self.kvstore = task.strategy or "device"
        if task.ranks > 1:
            self.kvstore = nodes.join(task)
        # For parts of the step: the training kvstore updates the weights itself and returns them.
        self.aggregator = gluon.Trainer(list(self.trained.values()), "sgd", kvstore=self.kvstore,
                                        update_on_kvstore=False)
        self.trainer = self._make_trainer()
        if task.precision in AMP:
            protocol.train_on_zeros(self, task, "MXNet", mx.base.MXNetError, own_words)

    def load(self, weights):
        for name, parameter in self.trained.items():
            parameter.set_data(mx.nd.array(weights[name], dtype="float32"))
        for norm in self._batch_norms().values():
            norm.running_mean.set_data(mx.nd.zeros(norm.running_mean.shape))
            norm.running_var.set_data(mx.nd.ones(norm.running_var.shape))
        # The momentum lives in the trainer.
        self.trainer = self._make_trainer()

    def feed(self, inputs, targets, residence):
        # (N, B, ...) or, with time first, (N, T, B)
        inputs = inputs.astype(np.int32 if self.task.network["vocabulary"] else np.float32)
        if self.time_first:
            inputs, targets = inputs.swapaxes(1, 2), targets.swapaxes(1, 2)
        self.from_host = residence == "host"
        host = mx.cpu_pinned(0) if "pinned host memory" in self.settings else mx.cpu()
        place = self.contexts[0] if len(self.contexts) == 1 and not self.from_host else host
        self.ring = [(mx.nd.array(inputs[n], place, inputs.dtype),
                      mx.nd.array(targets[n], place, np.int32)) for n in range(len(inputs))]
        if not self.from_host:
            self.ring = [self._split(batch) for batch in self.ring]
        self.position = 0

    def profile(self, run):
        return operators_of(run)

    def step(self):
        self.last_losses = self._backward(self.next_batch())
        self.trainer.step(self._count(self.last_losses))

    def synchronize(self):
        # For every operation that was queued, the updates too.
        mx.nd.waitall()

    def barrier(self):
        if self.task.ranks > 1:
            self.kvstore.wait_for_all()

    def loss(self):
        return float(np.mean([losses.asnumpy().mean(dtype=np.float64)
                              for losses in self.last_losses]))

    def parameters(self):
        return self.copies()[0]

    def statistics(self):
        first = self.contexts[0]
        return {f"{name}.{kind}": parameter.data(first).asnumpy()
                for name, norm in self._batch_norms().items()
                for kind, parameter in (("mean", norm.running_mean),
                                        ("variance", norm.running_var))}

    def copies(self):
        return [{name: parameter.data(context).asnumpy()
                 for name, parameter in self.trained.items()} for context in self.contexts]

    def variant(self, name):
        if name == "A":
            return Product(self._aggregation(), lambda result: self.synchronize())
        parts = {
            "F": lambda: self._forward(self.next_batch()),
            "FB": lambda: self._backward(self.next_batch()),
            "FBA": lambda: (self._backward(self.next_batch()),
                            self.aggregator.allreduce_grads()),
        }
        return Product(parts[name], lambda result: self.synchronize())

    def peak_memory(self):
        # MXNet's pool gives nothing back, so what is taken is the peak (CUDA's context counted).
        memory = map(mx.context.gpu_memory_info, range(len(self.contexts)))
        return max(total - free for free, total in memory)

    def batch(self, number):
        """Return (inputs, targets) on each device."""
        batch = super().batch(number)
        return self._split(batch) if self.from_host else batch

    def _split(self, batch):
        if len(self.contexts) == 1:
            return [[array.copyto(self.contexts[0]) if self.from_host else array
                     for array in batch]]
        axis = 1 if self.time_first else 0
        parts = [gluon.utils.split_and_load(array, self.contexts, batch_axis=axis)
                 for array in batch]
        return list(zip(*parts))

    def _forward(self, parts):
        """Losses on each device, to be differentiated: means of a sample, (B), or word, (T)."""
        with autograd.record():
            return [self.loss_function(self.net(inputs), targets) for inputs, targets in parts]

    def _backward(self, parts):
        """Losses on each device, and the gradients of their sums."""
        losses = self._forward(parts)
        with autograd.record():
            scaled = [each * self.scale for each in losses] if self.scale != 1 else losses
        for each in scaled:
            each.backward()
        return losses

    def _aggregation(self):
        """Return what `allreduce_grads` asks of a kvstore, on zeros: sums of sums overflow."""
        store = self.kvstore if self.task.ranks > 1 else mx.kv.create(self.kvstore)
        buffers = [[gradient.zeros_like() for gradient in parameter.list_grad()]
                   for parameter in self.trained.values()]
        for key, copies in enumerate(buffers):
            store.broadcast(key, copies[0], copies)

        def aggregate():
            for key, copies in enumerate(buffers):
                store.pushpull(key, copies, priority=-key)

        return aggregate

    def _count(self, losses):
        """Return the number by which the sums of gradients are divided."""
        return sum(len(each) for each in losses) * self.task.ranks * self.scale

    def _batch_norms(self):
        return {name: part for name, part in self.net.parts.items()
                if isinstance(part, nn.BatchNorm)}

    def _make_trainer(self):
        network = self.task.network
        options = {"learning_rate": network["learning_rate"], "momentum": network["momentum"],
                   "wd": 0.0}
        return gluon.Trainer(list(self.trained.values()), "sgd", options, kvstore=self.kvstore)

    def _output_shapes(self):
        """Shapes that MXNet infers for every layer, without the batch."""
        outputs = self.net.outputs(mx.sym.var("input"))
        group = mx.sym.Group(list(outputs.values()))
        _, shapes, _ = group.infer_shape(input=self._batch_shape())
        axis = 1 if self.time_first else 0
        return {name: shape[:axis] + shape[axis + 1:] for name, shape in zip(outputs, shapes)}

    def _batch_shape(self):
        shape = (self.task.batch,) + tuple(self.task.network["input_shape"])
        return shape[::-1] if self.time_first else shape


def refuse_what_is_missing(task):
    protocol.refuse_unknown(task, strategies=BETWEEN_NODES if task.ranks > 1 else KVSTORES)
    operations = {layer["op"] for layer in task.network["layers"]}
    if task.precision == "tf32" and not operations & {"conv2d", "lstm"}:
        raise Unsupported("TF32 in dense layers: MXNet 1.9.1 knows cuBLAS's default and fp16 "
                          "modes; cuDNN alone may use TF32")
    if task.precision == "bf16" and task.device == "cuda":
        raise Unsupported("bf16 on cuda: MXNet 1.9.1 has bfloat16 operators from oneDNN alone, "
                          "on the CPU")
    if task.device == "cuda" and mx.context.num_gpus() == 0:
        built = mx.runtime.Features().is_enabled("CUDA")
        build = "with CUDA" if built else "without CUDA (mxnet-cu117 has it)"
        raise Unsupported(f"mx.context.num_gpus() is 0 in a build {build}")
    local = task.devices // task.ranks
    if task.device == "cuda" and mx.context.num_gpus() < local:
        raise Unsupported(f"{local} devices: mx.context.num_gpus() is "
                          f"{mx.context.num_gpus()}")
    threads = os.environ["OMP_NUM_THREADS"]
    if task.device == "cpu" and threads != str(task.threads):
        raise Unsupported(f"{task.threads} threads: MXNet took OMP_NUM_THREADS={threads} as it was "
                          "loaded; start another process")


def tiers(task):
    """Return what each tier sets, as MXNet's pages advise."""
    tuned = ["hybridize", "static shapes", "hybridized loss"]
    if any(layer["op"] == "lstm" for layer in task.network["layers"]):
        tuned.append("words in the order T B")
    if task.device == "cuda":
        tuned += ["MXNET_CUDNN_AUTOTUNE_DEFAULT=2", "pinned host memory"]
    # Gluon's tutorials hybridize first.
    return {"stock": ["hybridize"], "compiled": ["hybridize"], "tuned": tuned,
            "uncompiled": "Gluon's tutorials hybridize, so stock does"}


def set_arithmetic(task):
    """Prepare MXNet for the precision: fp32 is IEEE fp32, though cuDNN 8 may take TF32 for it."""
    mx.random.seed(task.seed)
    if task.device == "cuda":
        # Both variables are read later: as cuBLAS and cuDNN start, and by each new convolution.
        if task.precision != "tf32":
            os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
        os.environ["MXNET_CUDNN_AUTOTUNE_DEFAULT"] = "2" if task.tuning == "tuned" else "1"
        refuse_a_gpu_without_kernels()
    precision = AMP.get(task.precision, "float32")
    if precisions and precision not in precisions:
        raise Unsupported(f"{precision} after {precisions[0]}: amp.init changes MXNet for good; "
                          "start another process")
    if precision == "bfloat16" and not precisions:
        # amp's list has operators without an input, on which its own wrapper fails.
        functions = [name for name in symbol_bf16.FP32_FUNCS if not name.startswith("_zeros")]
        amp.init(precision, fp32_ops=functions)
    elif precision == "float16" and not precisions:
        amp.init(precision)
    if precision != "float32":
        precisions.append(precision)


def refuse_a_gpu_without_kernels():
    """Run one operator: mxnet-cu117 has code for compute capability 5.0 to 8.6 and no PTX."""
    try:
        (mx.nd.ones((1,), ctx=mx.gpu(0)) + 1).wait_to_read()
    except mx.base.MXNetError as error:
        raise Unsupported(f"MXNet {mx.__version__} cannot run on this GPU: "
                          f"{own_words(error)}") from error


def own_words(error):
    """Return the last line of an MXNetError, which follows a stack of C++ frames."""
    return str(error).strip().splitlines()[-1].replace("MXNetError:", "").strip()[:300]
