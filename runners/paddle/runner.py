"""PaddlePaddle. `stock` is the tutorial's loop: dygraph, `paddle.nn`, `CrossEntropyLoss`, `paddle.optimizer.Momentum`.

`tuned` is what Paddle's guides offer for faster training: the forward pass and its loss as one static program
(`paddle.jit.to_static`), and an optimiser that updates all tensors at once. Mixed precision is `paddle.amp.auto_cast`, level O1.
Dense weights are stored [in, out] and turned at the border; everything else has the canonical layout.

Several devices are processes of `paddle.distributed.launch`, whose `paddle.DataParallel` averages gradients by all-reduce while the
backward pass runs: gloo's on CPUs, NCCL's on GPUs.
"""

import contextlib
import os
import platform
import warnings

import numpy as np
import paddle
from paddle import nn
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients

from runners.paddle.profile import operators_of
from runners.protocol import Product, Unsupported, assert_network
from runners.protocol import Runner as BaseRunner

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
LOSS_SCALE = 1024.0  # fixed, so that an fp16 trajectory can be compared: a scale that adapts skips steps
PARAMETER_NAMES = {  # ours -> Paddle's, where they differ
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "lstm": {"weight_input": "weight_ih_l0", "weight_hidden": "weight_hh_l0", "bias": "bias_ih_l0"},
}


class Net(nn.Layer):
    """The network's layers by name, run in their order."""

    def __init__(self, network, dropout):
        super().__init__()
        self.layers = network["layers"]
        self.parts = nn.LayerDict()
        shapes = {"input": network["input_shape"]}
        for layer in self.layers:
            self.parts[layer["name"]] = make_layer(layer, shapes[layer["inputs"][0]], dropout)
            shapes[layer["name"]] = layer["output_shape"]

    def forward(self, x):
        outputs = {"input": x}
        for layer in self.layers:
            outputs[layer["name"]] = self.parts[layer["name"]](*[outputs[name] for name in layer["inputs"]])
        return outputs[self.layers[-1]["name"]]


def make_layer(layer, input_shape, dropout):
    op, a = layer["op"], layer["attributes"]
    if op == "dense":
        return nn.Linear(input_shape[-1], a["units"])
    if op == "conv2d":
        bias = None if a["bias"] else False  # None is Paddle's default attribute: a bias
        return nn.Conv2D(input_shape[0], a["filters"], a["kernel"], a["stride"], a["padding"], groups=a["groups"], bias_attr=bias)
    if op == "max_pool":
        return nn.MaxPool2D(a["kernel"], a["stride"], a["padding"], ceil_mode=a["ceil"])
    if op == "avg_pool":
        return nn.AvgPool2D(a["kernel"], a["stride"])
    if op == "global_avg_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2D(1), nn.Flatten())
    if op == "relu":
        return nn.ReLU()
    if op == "sigmoid":
        return nn.Sigmoid()
    if op == "dropout":
        return nn.Dropout(a["rate"] if dropout else 0.0)
    if op == "batch_norm":
        return nn.BatchNorm2D(input_shape[0], epsilon=a["epsilon"])
    if op == "flatten":
        return nn.Flatten()
    if op == "embedding":
        return nn.Embedding(a["vocabulary"], a["units"])
    if op == "lstm":
        return OneBiasLSTM(input_shape[-1], a["units"])
    if op == "lrn":
        return nn.LocalResponseNorm(a["size"], a["alpha"], a["beta"])  # divides alpha by the size itself
    if op == "concat":
        return Concat()
    if op == "add":
        return Add()
    if op == "subsample":
        return Subsample(a["stride"])
    if op == "pad_channels":
        return PadChannels(a["extra"])
    raise Unsupported(f"layer {layer['name']}: this runner has no operation '{op}'")


class OneBiasLSTM(nn.LSTM):
    """Paddle's cell has two bias vectors whose sum acts; the second stays zero and untrained (`trained` leaves it out).

    It has a gradient all the same: with `stop_gradient` the backward pass of Paddle 3.3.1 dies ("Required tensor shall not be
    nullptr"), and without the bias Paddle leaves its LSTM kernel for a loop in Python.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.bias_hh_l0.set_value(paddle.zeros_like(self.bias_hh_l0))

    def forward(self, x):
        return super().forward(x)[0]  # (B, T, F) -> (B, T, H)


class Concat(nn.Layer):
    def forward(self, *images):
        return paddle.concat(images, axis=1)  # (B, C, H, W) each


class Add(nn.Layer):
    def forward(self, left, right):
        return left + right


class Subsample(nn.Layer):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return x[:, :, :: self.stride, :: self.stride]  # (B, C, H, W)


class PadChannels(nn.Layer):
    def __init__(self, extra):
        super().__init__()
        self.extra = extra

    def forward(self, x):
        return nn.functional.pad(x, [0, 0, 0, self.extra, 0, 0, 0, 0])  # (B, C, H, W) -> (B, C + extra, H, W)


class MeanLoss(nn.Layer):
    """The whole forward pass with its loss: what `tuned` makes one static program of."""

    def __init__(self, model, task):
        super().__init__()
        self.model = model
        self.task = task
        self.loss_function = nn.CrossEntropyLoss()

    def forward(self, inputs, targets):
        with mixed_precision(self.task):
            logits = self.model(inputs)  # (B, K) or (B, T, K)
        return self.loss_function(logits.astype("float32"), targets)


class Runner(BaseRunner):
    @staticmethod
    def describe():
        cuda = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
        return {
            "release": paddle.__version__,
            "device_name": paddle.device.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
            "libraries": {"cuda": paddle.version.cuda(), "cudnn": paddle.version.cudnn(), "commit": paddle.version.commit},
        }

    def __init__(self, task):
        refuse_what_is_missing(task)
        join_ranks(task)
        self.task = task
        set_tf32(task)
        paddle.seed(task.seed + task.rank)  # each rank drops units of its own

        self.model = Net(task.network, task.dropout)
        self.names = parameter_names(task.network)
        assert_network(task.network, output_shapes(self.model, task.network), self._trained_shapes())
        tuned = task.tuning == "tuned"
        self.local_loss = MeanLoss(self.model, task)
        if tuned:
            self.local_loss = paddle.jit.to_static(self.local_loss, full_graph=True)
        self.mean_loss = paddle.DataParallel(self.local_loss) if task.ranks > 1 else self.local_loss
        self.optimizer = paddle.optimizer.Momentum(
            task.network["learning_rate"], task.network["momentum"], use_multi_tensor=tuned,
            parameters=list(trained(self.model).values()))
        self.scaler = paddle.amp.GradScaler(
            enable=task.precision == "fp16", init_loss_scaling=LOSS_SCALE, use_dynamic_loss_scaling=False)
        if (task.precision, task.tuning) != ("fp32", "stock"):
            self._prove_possible()

    def load(self, weights):
        for name, parameter in self._parameters().items():
            parameter.set_value(weights[name].T if self._is_dense(name) else weights[name])
        for velocity in self._velocities():
            velocity.set_value(paddle.zeros_like(velocity))

    def feed(self, inputs, targets, residence):
        inputs = inputs.astype(np.int64 if self.task.network["vocabulary"] else np.float32)  # (N, B, ...)
        self.ring = list(zip(inputs, targets.astype(np.int64), strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [self._place(batch) for batch in self.ring]
        self.next = 0
        if self.task.device == "cuda":
            paddle.device.cuda.reset_max_memory_allocated()

    def profile(self, run):
        return operators_of(run)

    def step(self):
        loss = self._backward(self.mean_loss, self._next())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.model.clear_gradients()
        self.last_loss = loss.detach()

    def synchronize(self):
        if self.task.device == "cuda":
            paddle.device.synchronize()  # waits for every kernel, the update's too; on the CPU a step returns when it is done

    def barrier(self):
        if self.task.ranks > 1:
            paddle.distributed.barrier()
            self.synchronize()  # NCCL's barrier is a kernel

    def loss(self):
        return float(self.last_loss)

    def gradients(self):
        self._backward(self.mean_loss, self._batch(0))
        scale = LOSS_SCALE if self.task.precision == "fp16" else 1.0
        gradients = {name: self._canonical(name, parameter.grad) / scale for name, parameter in self._parameters().items()}
        self.model.clear_gradients()
        return gradients

    def parameters(self):
        return {name: self._canonical(name, parameter) for name, parameter in self._parameters().items()}

    def peak_memory(self):
        return paddle.device.cuda.max_memory_allocated() if self.task.device == "cuda" else None

    def variant(self, name):
        parts = {
            "F": lambda: self.local_loss(*self._next()),
            "FB": lambda: self._gradients_of(self.local_loss),
            "FBA": lambda: self._gradients_of(self.mean_loss),
            "FBAU": self.step,
        }
        return Product(self._aggregation() if name == "A" else parts[name], lambda _: self.synchronize())

    def _aggregation(self):
        """All-reduce on its own, as Paddle's guide calls it where DataParallel cannot; of gradients that were cleared to zeros."""
        if self.task.ranks == 1:
            raise Unsupported("one device has no gradients to aggregate")
        self._gradients_of(self.local_loss)
        parameters = self.model.parameters()
        return lambda: fused_allreduce_gradients(parameters, None)

    def _gradients_of(self, mean_loss):
        self._backward(mean_loss, self._next())
        self.model.clear_gradients()

    def _backward(self, mean_loss, batch):
        loss = mean_loss(*batch)
        self.scaler.scale(loss).backward()
        return loss

    def _next(self):
        batch = self._batch(self.next)
        self.next = (self.next + 1) % len(self.ring)
        return batch

    def _batch(self, position):
        batch = self.ring[position]
        return batch if self.on_device else self._place(batch)

    def _prove_possible(self):
        """Train one step on zeros, because kernels that lack a type or a program's lowering tell so only when they run."""
        network, weights = self.task.network, self.parameters()
        shape = (1, self.task.batch)
        self.feed(np.zeros(shape + tuple(network["input_shape"])), np.zeros(shape + tuple(network["target_shape"])), "device")
        try:
            self.step()
            self.synchronize()
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            what = f"{self.task.precision} {self.task.tuning} on {self.task.device}"
            raise Unsupported(f"Paddle cannot train {network['name']} in {what}: {last_words(error)}") from error
        self.load(weights)

    def _place(self, batch):
        return [paddle.to_tensor(array) for array in batch]  # copies to the device that `set_device` chose

    def _canonical(self, name, tensor):
        array = tensor.astype("float32").numpy()
        return np.array(array.T if self._is_dense(name) else array, order="C")

    def _is_dense(self, name):
        return name.endswith(".weight") and name.partition(".")[0] in self.dense

    def _trained_shapes(self):
        """Shapes of everything trained: by our names, and by the model's own where the network has no such thing."""
        ours = {theirs: our for our, theirs in self.names.items()}
        self.dense = {layer["name"] for layer in self.task.network["layers"] if layer["op"] == "dense"}
        shapes = {}
        for theirs, parameter in trained(self.model).items():
            name = ours.get(theirs, theirs)
            shapes[name] = tuple(parameter.shape)[::-1] if self._is_dense(name) else tuple(parameter.shape)
        return shapes

    def _parameters(self):
        theirs = trained(self.model)
        return {ours: theirs[name] for ours, name in self.names.items()}

    def _velocities(self):
        return [state for name, state in self.optimizer.state_dict().items() if "velocity" in name]


def refuse_what_is_missing(task):
    if task.tuning not in ("stock", "tuned"):
        raise Unsupported(f"tuning '{task.tuning}': this runner has stock and tuned")
    if task.precision == "tf32" and task.device != "cuda":
        raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
    if task.device == "cpu":
        fix_threads(task.threads)
    try:
        paddle.device.set_device({"cpu": "cpu", "cuda": "gpu"}[task.device])
    except (ValueError, RuntimeError) as error:
        raise Unsupported(f"paddle.device.set_device: {last_words(error)}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # where it cannot cast, Paddle only warns, and computes in float32
            with mixed_precision(task):
                pass
    except UserWarning as warning:
        raise Unsupported(f"paddle.amp.auto_cast: {warning}") from None


def join_ranks(task):
    """Meet the other processes of the launcher, once a process: a second call finds the group made."""
    if task.ranks == 1:
        return
    if task.strategy != "all_reduce":
        raise Unsupported(f"strategy '{task.strategy}': Paddle has all_reduce")
    paddle.distributed.init_parallel_env()
    if paddle.distributed.get_world_size() != task.ranks:
        raise RuntimeError(f"Paddle sees {paddle.distributed.get_world_size()} of {task.ranks} processes")


pool = []  # the threads that Paddle's OpenMP was started with


def fix_threads(threads):
    """Let Paddle's OpenMP, which serves its MKL and oneDNN, have `threads` threads.

    Paddle has no call for it (its guide names OMP_NUM_THREADS), and makes the variable 1 on import where it is not set. But the
    OpenMP runtime reads it only when the first operation runs, and then for every thread: the static executor has its own.
    """
    if not pool:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
        pool.append(threads)
    if pool != [threads]:
        raise Unsupported(f"{threads} threads: Paddle's OpenMP has started with {pool[0]} in this process; start another")


def set_tf32(task):
    """fp32 is IEEE fp32: on GPUs Paddle lets cuBLAS and cuDNN take TF32, and these switches are all that it has for it."""
    if task.device == "cuda":
        paddle.base.core.set_cublas_switch(task.precision == "tf32")
        paddle.base.core.set_cudnn_switch(task.precision == "tf32")


def mixed_precision(task):
    if task.precision in AUTOCAST:
        return paddle.amp.auto_cast(level="O1", dtype=AUTOCAST[task.precision])
    return contextlib.nullcontext()


def trained(model):
    """The parameters that the optimiser trains, by the model's own names."""
    return {
        name: parameter for name, parameter in model.named_parameters()
        if not parameter.stop_gradient and not name.endswith("bias_hh_l0")
    }


def parameter_names(network):
    """Our full name -> the model's: {"batch_norm1.scale": "parts.batch_norm1.weight", ...}."""
    return {
        f"{layer['name']}.{name}": f"parts.{layer['name']}.{PARAMETER_NAMES.get(layer['op'], {}).get(name, name)}"
        for layer in network["layers"] for name in layer["parameters"]
    }


def output_shapes(model, network):
    """Shapes that the layers really give, without the batch, seen by hooks during one forward pass of two samples."""
    shapes = {}
    hooks = [
        part.register_forward_post_hook(lambda _part, _inputs, output, name=name: shapes.update({name: tuple(output.shape[1:])}))
        for name, part in model.parts.items()
    ]
    with paddle.no_grad():
        model(paddle.zeros([2, *network["input_shape"]], "int64" if network["vocabulary"] else "float32"))
    for hook in hooks:
        hook.remove()
    return shapes


def last_words(error):
    """The message itself: Paddle puts its own C++ and Python traces before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or line.startswith("[Hint")]
    return " ".join(told[-2:] or lines[-1:])[:300]
