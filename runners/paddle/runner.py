"""PaddlePaddle. `stock` is the tutorial's loop: dygraph, `CrossEntropyLoss` and `Momentum`.

`compiled` makes the forward pass and its loss one static program (`paddle.jit.to_static`). `tuned`
adds an optimiser that updates all tensors at once, as Paddle's guides say. Mixed precision is
`paddle.amp.auto_cast`, level O1. Dense weights are stored [in, out] and turned at the border;
everything else has the canonical layout.

Several devices are processes of `paddle.distributed.launch`, whose `paddle.DataParallel` averages
gradients by all-reduce while the backward pass runs: gloo's on CPUs, NCCL's on GPUs.
"""

import contextlib
import warnings

import numpy as np
import paddle
from paddle import nn
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients

from runners import protocol
from runners.paddle.layers import PARAMETER_NAMES, Net, output_shapes, trained
from runners.paddle.profile import operators_of
from runners.protocol import Product, Unsupported

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
# Fixed, so that an fp16 trajectory can be compared: a scale that adapts skips steps.
LOSS_SCALE = 1024.0
TIERS = {
    "stock": [],
    "compiled": ["paddle.jit.to_static"],
    "tuned": ["paddle.jit.to_static", "use_multi_tensor"],
    "uncompiled": "Paddle's stock is eager",
}
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError)


class MeanLoss(nn.Layer):
    """The whole forward pass with its loss: `compiled` makes one static program of it."""

    def __init__(self, model, task):
        super().__init__()
        self.model = model
        self.task = task
        self.loss_function = nn.CrossEntropyLoss()

    def forward(self, inputs, targets):
        with mixed_precision(self.task):
            logits = self.model(inputs)  # (B, K) or (B, T, K)
        return self.loss_function(logits.astype("float32"), targets)


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        cuda = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
        return {
            "release": paddle.__version__,
            "device_name": paddle.device.cuda.get_device_name() if cuda
            else protocol.processor_name(),
            "libraries": {"cuda": paddle.version.cuda(), "cudnn": paddle.version.cudnn(),
                          "commit": paddle.version.commit},
        }

    def __init__(self, task):
        refuse_what_is_missing(task)
        join_ranks(task)
        self.task = task
        set_tf32(task)
        # Each rank drops units of its own.
        paddle.seed(task.seed + task.rank)

        self.model = Net(task.network)
        self.names = protocol.native_names(task.network, PARAMETER_NAMES)
        outputs = output_shapes(self.model, task.network)
        protocol.assert_network(task.network, outputs, self._trained_shapes())
        self.settings = protocol.settings_of(task, TIERS)
        self.decay = 0.0
        self.local_loss = MeanLoss(self.model, task)
        if "paddle.jit.to_static" in self.settings:
            self.local_loss = paddle.jit.to_static(self.local_loss, full_graph=True)
        several = task.ranks > 1
        self.mean_loss = paddle.DataParallel(self.local_loss) if several else self.local_loss
        self.optimizer = paddle.optimizer.Momentum(
            task.network["learning_rate"], task.network["momentum"],
            parameters=list(trained(self.model).values()),
            use_multi_tensor="use_multi_tensor" in self.settings)
        self.scaler = paddle.amp.GradScaler(
            enable=task.precision == "fp16", init_loss_scaling=LOSS_SCALE,
            use_dynamic_loss_scaling=False)
        if (task.precision, task.tuning) != ("fp32", "stock"):
            protocol.train_on_zeros(self, task, "Paddle", REFUSALS, last_words)

    def load(self, weights):
        for name, parameter in self._parameters().items():
            parameter.set_value(weights[name].T if self._is_dense(name) else weights[name])
        for velocity in self._velocities():
            velocity.set_value(paddle.zeros_like(velocity))
        for norm in self._batch_norms().values():
            norm._mean.set_value(paddle.zeros_like(norm._mean))
            norm._variance.set_value(paddle.ones_like(norm._variance))

    def feed(self, inputs, targets, residence):
        # (N, B, ...)
        inputs = inputs.astype(np.int64 if self.task.network["vocabulary"] else np.float32)
        self.ring = list(zip(inputs, targets.astype(np.int64), strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [self._place(batch) for batch in self.ring]
        self.position = 0
        if self.task.device == "cuda":
            paddle.device.cuda.reset_max_memory_allocated()

    def profile(self, run):
        return operators_of(run)

    def step(self):
        loss = self._backward(self.mean_loss, self.next_batch())
        if self.decay:
            with paddle.no_grad():
                for parameter in trained(self.model).values():
                    paddle.assign(parameter.grad + self.decay * parameter, parameter.grad)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.model.clear_gradients()
        self.last_loss = loss.detach()

    def synchronize(self):
        # Waits for every kernel, the update's too; on the CPU a step returns when it is done.
        if self.task.device == "cuda":
            paddle.device.synchronize()

    def barrier(self):
        if self.task.ranks > 1:
            paddle.distributed.barrier()
            # NCCL's barrier is a kernel.
            self.synchronize()

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        return {name: self._canonical(name, parameter)
                for name, parameter in self._parameters().items()}

    def statistics(self):
        return {f"{name}.{kind}": tensor.numpy()
                for name, norm in self._batch_norms().items()
                for kind, tensor in (("mean", norm._mean), ("variance", norm._variance))}

    def schedule(self, rate, decay):
        # Paddle's optimizer fixes its own weight decay when it is made.
        self.optimizer.set_lr(rate)
        self.decay = decay

    def infer(self, inputs):
        self.model.eval()
        with paddle.no_grad(), mixed_precision(self.task):
            outputs = self.model(paddle.to_tensor(np.ascontiguousarray(inputs)))
        self.model.train()
        return outputs.astype("float32").numpy()

    def peak_memory(self):
        return paddle.device.cuda.max_memory_allocated()

    def variant(self, name):
        parts = {
            "F": lambda: self.local_loss(*self.next_batch()),
            "FB": lambda: self._gradients_of(self.local_loss),
            "FBA": lambda: self._gradients_of(self.mean_loss),
        }
        compute = self._aggregation() if name == "A" else parts[name]
        return Product(compute, lambda _: self.synchronize())

    def _aggregation(self):
        """All-reduce alone, as Paddle's guide calls it, of gradients that were cleared to zeros."""
        self._gradients_of(self.local_loss)
        parameters = self.model.parameters()
        return lambda: fused_allreduce_gradients(parameters, None)

    def _gradients_of(self, mean_loss):
        self._backward(mean_loss, self.next_batch())
        self.model.clear_gradients()

    def _backward(self, mean_loss, batch):
        loss = mean_loss(*batch)
        self.scaler.scale(loss).backward()
        return loss

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else self._place(batch)

    def _place(self, batch):
        # Copies to the device that `set_device` chose.
        return [paddle.to_tensor(array) for array in batch]

    def _canonical(self, name, tensor):
        array = tensor.astype("float32").numpy()
        return np.array(array.T if self._is_dense(name) else array, order="C")

    def _is_dense(self, name):
        return name.endswith(".weight") and name.partition(".")[0] in self.dense

    def _trained_shapes(self):
        """Shapes of everything trained, by our names or else by the model's own."""
        ours = {theirs: our for our, theirs in self.names.items()}
        layers = self.task.network["layers"]
        self.dense = {layer["name"] for layer in layers if layer["op"] in ("dense", "linear")}
        named = {ours.get(theirs, theirs): tuple(parameter.shape)
                 for theirs, parameter in trained(self.model).items()}
        return {name: shape[::-1] if self._is_dense(name) else shape
                for name, shape in named.items()}

    def _parameters(self):
        theirs = trained(self.model)
        return {ours: theirs[name] for ours, name in self.names.items()}

    def _batch_norms(self):
        return {name: part for name, part in self.model.parts.items()
                if isinstance(part, nn.BatchNorm2D)}

    def _velocities(self):
        states = self.optimizer.state_dict()
        return [state for name, state in states.items() if "velocity" in name]


def refuse_what_is_missing(task):
    protocol.refuse_unknown(task, strategies=["all_reduce"])
    if task.device == "cpu":
        # Paddle has no call for the threads of its OpenMP, which serves its MKL and oneDNN. The
        # OpenMP runtime reads the variable when the first operation runs, for every thread.
        variables = ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]
        protocol.fix_threads(task.threads, variables, "Paddle's OpenMP")
    try:
        paddle.device.set_device({"cpu": "cpu", "cuda": "gpu"}[task.device])
    except (ValueError, RuntimeError) as error:
        raise Unsupported(f"paddle.device.set_device: {last_words(error)}") from error
    try:
        with warnings.catch_warnings():
            # Where it cannot cast, Paddle only warns, and computes in float32.
            warnings.simplefilter("error", UserWarning)
            with mixed_precision(task):
                pass
    except UserWarning as warning:
        raise Unsupported(f"paddle.amp.auto_cast: {warning}") from None


def join_ranks(task):
    """Meet the launcher's other processes; a second call finds the group made."""
    if task.ranks == 1:
        return
    paddle.distributed.init_parallel_env()
    size = paddle.distributed.get_world_size()
    if size != task.ranks:
        raise RuntimeError(f"Paddle sees {size} of {task.ranks} processes")


def set_tf32(task):
    """fp32 is IEEE fp32: on GPUs Paddle lets cuBLAS and cuDNN take TF32 without these switches."""
    if task.device == "cuda":
        paddle.base.core.set_cublas_switch(task.precision == "tf32")
        paddle.base.core.set_cudnn_switch(task.precision == "tf32")


def mixed_precision(task):
    if task.precision in AUTOCAST:
        return paddle.amp.auto_cast(level="O1", dtype=AUTOCAST[task.precision])
    return contextlib.nullcontext()


def last_words(error):
    """The message itself: Paddle puts its own C++ and Python traces before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Error" in line or line.startswith("[Hint")]
    return " ".join(said[-2:] or lines[-1:])[:300]
