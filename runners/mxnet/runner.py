"""MXNet 1.9.1. `stock` is Gluon's tutorial loop: a `HybridBlock` hybridized with static allocation, `gluon.Trainer` with SGD.

`tuned` adds what MXNet's own pages advise: static shapes, a hybridized loss, words in the order T B (the fused LSTM's own); on a
GPU also cuDNN's fastest algorithms whatever their workspace, and pinned host memory. The oneDNN subgraphs of its performance
page are for inference: `optimize_for(backend="MKLDNN")` trains nothing and says nothing. Several devices train as in Gluon's
tutorial: `split_and_load`, a loss and a backward pass on each, and a kvstore in the trainer. Python 3.6 syntax.
"""

import os
import platform

os.environ.setdefault("OMP_NUM_THREADS", "1")  # MXNet reads it once, as it is loaded; the driver sets it for every CPU trial

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp
from mxnet.contrib.amp.lists import symbol_bf16
from mxnet.gluon import nn, rnn

from runners.mxnet.profile import operators_of
from runners.protocol import Product, Unsupported, assert_network
from runners.protocol import Runner as BaseRunner

AMP = {"bf16": "bfloat16", "fp16": "float16"}
KVSTORES = ("local", "device", "nccl")
LOSS_SCALE = 1024.0  # of fp16, fixed, so that a trajectory can be compared: amp's own scale adapts and skips steps
PARAMETER_NAMES = {  # ours -> Gluon's, where they differ
    "batch_norm": {"scale": "gamma", "shift": "beta"},
    "lstm": {"weight_input": "l0_i2h_weight", "weight_hidden": "l0_h2h_weight", "bias": "l0_i2h_bias"},
}
precisions = []  # what amp.init was called with in this process: at most one


class Net(gluon.HybridBlock):
    """The network's layers by name, run in their order."""

    def __init__(self, task, layout):
        super().__init__(prefix="")
        self.layers = task.network["layers"]
        self.parts = {}
        shapes = {"input": task.network["input_shape"]}
        for layer in self.layers:
            part = make_layer(layer, shapes[layer["inputs"][0]], task, layout)
            self.parts[layer["name"]] = part
            self.register_child(part, layer["name"])
            shapes[layer["name"]] = layer["output_shape"]

    def hybrid_forward(self, F, x):
        return self.outputs(x)[self.layers[-1]["name"]]

    def outputs(self, x):
        outputs = {"input": x}
        for layer in self.layers:
            outputs[layer["name"]] = self.parts[layer["name"]](*[outputs[name] for name in layer["inputs"]])
        return outputs


def make_layer(layer, input_shape, task, layout):
    op, a, prefix = layer["op"], layer["attributes"], layer["name"] + "_"
    if op == "dense":
        return nn.Dense(a["units"], flatten=False, in_units=input_shape[-1], prefix=prefix)
    if op == "conv2d":
        return nn.Conv2D(a["filters"], a["kernel"], a["stride"], a["padding"], groups=a["groups"], use_bias=a["bias"],
                         in_channels=input_shape[0], prefix=prefix)
    if op == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=a["ceil"])
    if op == "avg_pool":
        return nn.AvgPool2D(a["kernel"], a["stride"])
    if op == "global_avg_pool":
        return chain(nn.GlobalAvgPool2D(), nn.Flatten())
    if op in ("relu", "sigmoid"):
        return nn.Activation(op)
    if op == "dropout":
        return nn.Dropout(a["rate"] if task.dropout else 0)
    if op == "batch_norm":
        return nn.BatchNorm(epsilon=a["epsilon"], in_channels=input_shape[0], prefix=prefix)
    if op == "flatten":
        return nn.Flatten()
    if op == "embedding":
        return nn.Embedding(a["vocabulary"], a["units"], prefix=prefix)
    if op == "lstm":
        return one_bias_lstm(rnn.LSTM(a["units"], layout=layout, input_size=input_shape[-1], prefix=prefix))
    if op == "lrn":
        return nn.HybridLambda(lambda F, x: F.LRN(x, alpha=a["alpha"], beta=a["beta"], knorm=1, nsize=a["size"]))
    if op == "concat":
        return nn.HybridLambda(lambda F, *images: F.concat(*images, dim=1))  # (B, C, H, W) each
    if op == "add":
        return nn.HybridLambda(lambda F, left, right: left + right)
    if op == "subsample":
        step = (None, None, a["stride"], a["stride"])
        return nn.HybridLambda(lambda F, x: F.slice(x, begin=(None,) * 4, end=(None,) * 4, step=step))  # (B, C, H, W)
    if op == "pad_channels":
        return pad_channels(input_shape, a["extra"])
    raise Unsupported(f"layer {layer['name']}: this runner has no operation '{op}'")


def chain(*blocks):
    sequence = nn.HybridSequential()
    sequence.add(*blocks)
    return sequence


def one_bias_lstm(lstm):
    """cuDNN's cell has two bias vectors whose sum acts; the second stays zero and untrained."""
    lstm.l0_h2h_bias.grad_req = "null"
    return lstm


def pad_channels(input_shape, extra):
    """F.pad leaves the first two axes alone, so C becomes the third for it."""
    channels, height, width = input_shape
    margin = (0, 0, 0, 0, 0, extra, 0, 0)

    def pad(F, x):
        x = x.reshape((0, 1, channels, height * width))  # (B, C, H, W) -> (B, 1, C, H W)
        return F.pad(x, mode="constant", pad_width=margin).reshape((0, channels + extra, height, width))

    return nn.HybridLambda(pad)


class Runner(BaseRunner):
    @staticmethod
    def describe():
        features = mx.runtime.Features()
        libraries = {name.lower(): features.is_enabled(name) for name in ("MKLDNN", "BLAS_OPEN", "CUDA", "CUDNN")}
        return {"release": mx.__version__, "device_name": platform.processor() or platform.machine(), "libraries": libraries}

    def __init__(self, task):
        refuse_what_is_missing(task)
        self.task = task
        self.contexts = [(mx.gpu if task.device == "cuda" else mx.cpu)(number) for number in range(task.devices)]
        self.tuned = task.tuning == "tuned"
        self.time_first = self.tuned and bool(task.network["vocabulary"])
        self.scale = LOSS_SCALE if task.precision == "fp16" else 1.0
        set_arithmetic(task)

        self.net = Net(task, "TNC" if self.time_first else "NTC")
        self.trained = trained_parameters(self.net, task.network)
        shapes = {name: parameter.shape for name, parameter in self.trained.items()}
        assert_network(task.network, self._output_shapes(), shapes)
        self.net.initialize(mx.init.Zero(), ctx=self.contexts)
        self.loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
        self.net.hybridize(static_alloc=True, static_shape=self.tuned)
        if self.tuned:
            self.loss_function.hybridize(static_alloc=True, static_shape=True)
        self.kvstore = task.strategy or "device"  # Gluon's default; it makes one only where there are several devices
        # For reading gradients: the kvstore of the trainer that trains updates by itself and answers with weights.
        self.aggregator = gluon.Trainer(list(self.trained.values()), "sgd", kvstore=self.kvstore, update_on_kvstore=False)
        self.trainer = self._make_trainer()
        if task.precision in AMP:
            self._prove_possible()

    def load(self, weights):
        for name, parameter in self.trained.items():
            parameter.set_data(mx.nd.array(weights[name], dtype="float32"))
        self.trainer = self._make_trainer()  # the momentum lives in the trainer

    def feed(self, inputs, targets, residence):
        inputs = inputs.astype(np.int32 if self.task.network["vocabulary"] else np.float32)  # (N, B, ...)
        if self.time_first:
            inputs, targets = inputs.swapaxes(1, 2), targets.swapaxes(1, 2)  # (N, T, B)
        self.from_host = residence == "host"
        pinned = self.tuned and self.task.device == "cuda"
        host = mx.cpu_pinned(0) if pinned else mx.cpu()
        place = self.contexts[0] if len(self.contexts) == 1 and not self.from_host else host
        self.ring = [(mx.nd.array(inputs[n], place, inputs.dtype), mx.nd.array(targets[n], place, np.int32))
                     for n in range(len(inputs))]
        if not self.from_host:
            self.ring = [self._split(batch) for batch in self.ring]
        self.position = 0

    def profile(self, run):
        return operators_of(run)

    def step(self):
        self.last_losses = self._backward(self._next_batch())
        self.trainer.step(self._count(self.last_losses))

    def synchronize(self):
        mx.nd.waitall()  # for every operation that was queued, the updates too

    def loss(self):
        return float(np.mean([losses.asnumpy().mean(dtype=np.float64) for losses in self.last_losses]))

    def gradients(self):
        count = np.float32(self._count(self._backward(self._batch(0))))
        self.aggregator.allreduce_grads()
        return {name: parameter.list_grad()[0].asnumpy() / count for name, parameter in self.trained.items()}

    def parameters(self):
        return self.copies()[0]

    def copies(self):
        return [{name: parameter.data(context).asnumpy() for name, parameter in self.trained.items()} for context in self.contexts]

    def variant(self, name):
        if name == "FBAU":
            return self
        if name == "A":
            return Product(self._aggregation(), lambda result: self.synchronize())
        parts = {
            "F": lambda: self._forward(self._next_batch()),
            "FB": lambda: self._backward(self._next_batch()),
            "FBA": lambda: (self._backward(self._next_batch()), self.aggregator.allreduce_grads()),
        }
        return Product(parts[name], lambda result: self.synchronize())

    def peak_memory(self):
        if self.task.device != "cuda":
            return None
        # MXNet's pool gives nothing back, so what is taken is the peak (CUDA's own context counted).
        return max(total - free for free, total in map(mx.context.gpu_memory_info, range(len(self.contexts))))

    def _next_batch(self):
        self.position += 1
        return self._batch(self.position - 1)

    def _batch(self, number):
        """(inputs, targets) on each device."""
        batch = self.ring[number % len(self.ring)]
        return self._split(batch) if self.from_host else batch

    def _split(self, batch):
        if len(self.contexts) == 1:
            return [[array.copyto(self.contexts[0]) if self.from_host else array for array in batch]]
        axis = 1 if self.time_first else 0
        return list(zip(*[gluon.utils.split_and_load(array, self.contexts, batch_axis=axis) for array in batch]))  # noqa: B905

    def _forward(self, parts):
        """Losses on each device, to be differentiated: a mean for each sample (each word of T where words come first)."""
        with autograd.record():
            return [self.loss_function(self.net(inputs), targets) for inputs, targets in parts]  # (B) or (T) each

    def _backward(self, parts):
        """Losses on each device, and the gradients of their sums."""
        losses = self._forward(parts)
        with autograd.record():
            scaled = [each * self.scale for each in losses] if self.scale != 1 else losses
        for each in scaled:
            each.backward()
        return losses

    def _aggregation(self):
        """What `allreduce_grads` asks of a kvstore, of zeros: sums of sums would overflow."""
        if len(self.contexts) == 1:
            raise Unsupported("one device has no gradients to aggregate")
        store = mx.kv.create(self.kvstore)
        buffers = [[gradient.zeros_like() for gradient in parameter.list_grad()] for parameter in self.trained.values()]
        for key, copies in enumerate(buffers):
            store.init(key, copies[0])

        def aggregate():
            for key, copies in enumerate(buffers):
                store.pushpull(key, copies, priority=-key)

        return aggregate

    def _count(self, losses):
        """What the sums of gradients are divided by."""
        return sum(len(each) for each in losses) * self.scale

    def _make_trainer(self):
        network = self.task.network
        options = {"learning_rate": network["learning_rate"], "momentum": network["momentum"], "wd": 0.0}
        return gluon.Trainer(list(self.trained.values()), "sgd", options, kvstore=self.kvstore)

    def _output_shapes(self):
        """Shapes that MXNet infers for every layer, without the batch."""
        outputs = self.net.outputs(mx.sym.var("input"))
        _, shapes, _ = mx.sym.Group(list(outputs.values())).infer_shape(input=self._batch_shape())
        batch_axis = 1 if self.time_first else 0
        return {name: shape[:batch_axis] + shape[batch_axis + 1:] for name, shape in zip(outputs, shapes)}  # noqa: B905

    def _batch_shape(self):
        shape = (self.task.batch,) + tuple(self.task.network["input_shape"])
        return shape[::-1] if self.time_first else shape

    def _prove_possible(self):
        """Train one step on zeros: operators that lack a type say so only when they run."""
        network, batch = self.task.network, self.task.batch * self.task.devices
        inputs = np.zeros([1, batch] + network["input_shape"])
        targets = np.zeros([1, batch] + network["target_shape"], np.int32)
        try:
            self.feed(inputs, targets, "device")
            self.step()
            self.synchronize()
        except mx.base.MXNetError as error:
            what = f"{self.task.precision} on {self.task.device}"
            raise Unsupported(f"MXNet cannot train {network['name']} in {what}: {own_words(error)}") from error


def refuse_what_is_missing(task):
    if task.tuning not in ("stock", "tuned"):
        raise Unsupported(f"tuning '{task.tuning}': this runner has stock and tuned")
    if task.devices > 1 and task.strategy not in KVSTORES:
        raise Unsupported(f"strategy '{task.strategy}': this runner has the kvstores {', '.join(KVSTORES)}")
    if task.strategy == "nccl" and task.device == "cpu":
        raise Unsupported("strategy 'nccl': NCCL moves data between GPUs")
    if task.precision == "tf32" and task.device != "cuda":
        raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
    if task.precision == "tf32" and not any(layer["op"] in ("conv2d", "lstm") for layer in task.network["layers"]):
        raise Unsupported("TF32 in dense layers: MXNet 1.9.1 knows cuBLAS's default and fp16 modes; cuDNN alone may use TF32")
    if task.precision == "bf16" and task.device == "cuda":
        raise Unsupported("bf16 on cuda: MXNet 1.9.1 has bfloat16 operators from oneDNN alone, on the CPU")
    if task.device == "cuda" and mx.context.num_gpus() == 0:
        build = "with CUDA" if mx.runtime.Features().is_enabled("CUDA") else "without CUDA (mxnet-cu117 has it)"
        raise Unsupported(f"mx.context.num_gpus() is 0 in a build {build}")
    if task.device == "cuda" and mx.context.num_gpus() < task.devices:
        raise Unsupported(f"{task.devices} devices: mx.context.num_gpus() is {mx.context.num_gpus()}")
    threads = os.environ["OMP_NUM_THREADS"]
    if task.device == "cpu" and threads != str(task.threads):
        raise Unsupported(f"{task.threads} threads: MXNet took OMP_NUM_THREADS={threads} as it was loaded; start another process")


def set_arithmetic(task):
    """Prepare MXNet for the task's precision; fp32 is IEEE fp32, though cuDNN 8 takes TF32 for it unless told otherwise."""
    mx.random.seed(task.seed)
    if task.device == "cuda":  # both variables are read later, by cuBLAS and cuDNN as they start and by each new convolution
        if task.precision != "tf32":
            os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
        os.environ["MXNET_CUDNN_AUTOTUNE_DEFAULT"] = "2" if task.tuning == "tuned" else "1"
        refuse_a_gpu_without_kernels()
    precision = AMP.get(task.precision, "float32")
    if precisions and precision not in precisions:
        raise Unsupported(f"{precision} after {precisions[0]}: amp.init changes MXNet for good; start another process")
    if precision == "bfloat16" and not precisions:
        # amp's list has operators without an input, on which its own wrapper fails: 'NoneType' object is not iterable
        amp.init(precision, fp32_ops=[name for name in symbol_bf16.FP32_FUNCS if not name.startswith("_zeros")])
    elif precision == "float16" and not precisions:
        amp.init(precision)
    if precision != "float32":
        precisions.append(precision)


def refuse_a_gpu_without_kernels():
    """Run one operator: mxnet-cu117 has code for compute capability 5.0 to 8.6 and no PTX that a newer GPU could translate."""
    try:
        (mx.nd.ones((1,), ctx=mx.gpu(0)) + 1).wait_to_read()
    except mx.base.MXNetError as error:
        raise Unsupported(f"MXNet {mx.__version__} cannot run on this GPU: {own_words(error)}") from error


def trained_parameters(net, network):
    """All that the trainer trains, by our full names; by Gluon's own where the network has no such parameter."""
    ours = {
        getattr(net.parts[layer["name"]], PARAMETER_NAMES.get(layer["op"], {}).get(name, name)).name: f"{layer['name']}.{name}"
        for layer in network["layers"] for name in layer["parameters"]
    }
    trained = [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]
    return {ours.get(parameter.name, parameter.name): parameter for parameter in trained}


def own_words(error):
    """The last line of an MXNetError, which stands behind a stack of C++ frames."""
    return str(error).strip().splitlines()[-1].replace("MXNetError:", "").strip()[:300]
