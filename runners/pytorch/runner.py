"""PyTorch. `stock` is the tutorial's loop: an eager `nn.Module`, `CrossEntropyLoss` and SGD.

`compiled` adds `torch.compile`. `tuned` follows PyTorch's performance guide (`tiers`). Mixed
precision is `torch.autocast` in all. Several devices are ranks (`parallel`).
"""

import contextlib

import numpy as np
import torch
from torch import nn

from runners import protocol
from runners.protocol import Part, Product, Unsupported
from runners.pytorch import compiling, parallel
from runners.pytorch.layers import PARAMETER_NAMES, Net, output_shapes, trained_shapes, zeros

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Fixed, so that an fp16 trajectory can be compared: a scale that adapts skips steps.
LOSS_SCALE = 1024.0


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        cuda = torch.cuda.is_available()
        return {
            "release": torch.__version__.split("+")[0],
            "device_name": torch.cuda.get_device_name() if cuda else protocol.processor_name(),
            "libraries": {"build": torch.__version__, "cuda": torch.version.cuda,
                          "cudnn": torch.backends.cudnn.version(),
                          "mkldnn": torch.backends.mkldnn.is_available()},
        }

    def __init__(self, task):
        refuse_what_is_missing(task)
        self.task = task
        self.settings = protocol.settings_of(task, tiers(task))
        self.device = parallel.join(task) if task.ranks > 1 else torch.device(task.device)
        # Else code compiled for an earlier task would be compiled again, for batches of any size.
        torch._dynamo.reset()
        set_arithmetic(task)
        torch.backends.cudnn.benchmark = "cuDNN benchmark" in self.settings
        # Each rank drops units of its own.
        torch.manual_seed(task.seed + task.rank)

        self.model = Net(task.network, parallel.PIECE_BYTES if parallel.PIECES in self.settings
                         else None).to(self.device)
        self.names = protocol.native_names(task.network, PARAMETER_NAMES)
        protocol.assert_network(task.network, output_shapes(self.model, task.network, self.device),
                       trained_shapes(self.model, self.names))
        self.keeps_channels_last = "channels_last" in self.settings
        if self.keeps_channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.replica, self.aggregation = parallel.aggregated(self.model, task)
        self.whole_batch, self.parted = self.aggregation.whole_batch, self.aggregation.parted
        self.held_names = self.aggregation.named(self.names)
        self.settings = self.settings + self.aggregation.settings()
        self.loss_function = nn.CrossEntropyLoss()
        self.mean_loss = self._loss
        if "torch.compile" in self.settings:
            self.mean_loss = compiling.compiled(self._loss, task.device)
        rate = task.network["learning_rate"]
        self.decay = None
        if task.scheduled and "CUDA graph" in self.settings:
            # A captured step reads them from the device.
            rate, self.decay = (torch.tensor(value, dtype=torch.float32, device=self.device)
                                for value in (rate, 0.0))
        self.optimizer = torch.optim.SGD(
            self._trained(), lr=rate, momentum=task.network["momentum"],
            fused=True if "fused SGD" in self.settings else None)
        self.scaler = None
        if task.precision == "fp16":
            self.scaler = torch.amp.GradScaler(task.device, init_scale=LOSS_SCALE,
                                               growth_interval=2**31 - 1)
        self.train = self.fit(self._train)

    def load(self, weights):
        # In place: a captured graph keeps its addresses.
        with torch.no_grad():
            self.aggregation.put(self._parameters(), weights)
            for state in self.optimizer.state.values():
                if state.get("momentum_buffer") is not None:
                    state["momentum_buffer"].zero_()
            for norm in self._batch_norms().values():
                norm.reset_running_stats()
        self.aggregation.reset()

    def feed(self, inputs, targets, residence):
        inputs = torch.from_numpy(inputs)  # (N, B, ...)
        targets = torch.from_numpy(targets).long()  # (N, B) or (N, B, T)
        self.ring = [self._place(x, y, residence) for x, y in zip(inputs, targets, strict=True)]
        self.position = 0
        if self.device.type == "cuda":
            # Memory that the proof used does not count as the training's.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def files(self, described):
        from runners.pytorch import files

        return files.load(described, self.task.batch, self.device.type == "cuda", self._layout())

    def step(self):
        self.last_loss = self.train(*self.next_batch())

    def synchronize(self):
        # Waits for every kernel, the update's too; on the CPU a step returns when it is done.
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def barrier(self):
        if self.task.ranks > 1:
            parallel.wait_for_all(self.task)

    def loss(self):
        return self.aggregation.everybodys(self.last_loss).item()

    def stage_seconds(self, steps):
        """Train `steps` steps, not timed; return what `Working.end` does of a pipeline's stage."""
        working = self.aggregation.working
        working.begin()
        for _ in range(steps):
            self.step()
        self.synchronize()
        return working.end()

    def parameters(self):
        return self.parameters_of(self.names)

    def parameters_of(self, names):
        return all_to_numpy({
            name: parameter
            for name, parameter in self.aggregation.whole(self._parameters()).items()
            if name in names})

    def held(self):
        return self.aggregation.held(self._parameters())

    def statistics(self):
        return all_to_numpy({
            f"{name}.{kind}": array for name, norm in self._batch_norms().items()
            for kind, array in (("mean", norm.running_mean), ("variance", norm.running_var))})

    def schedule(self, rate, decay):
        for group in self.optimizer.param_groups:
            if self.decay is None:
                group.update(lr=rate, weight_decay=decay)
            else:
                group["lr"].fill_(rate)
        if self.decay is not None:
            self.decay.fill_(decay)

    def infer(self, inputs):
        inputs = torch.from_numpy(np.ascontiguousarray(inputs))
        self.model.eval()
        with torch.no_grad(), self._autocast():
            outputs = self.model(self._in_layout(inputs).to(self.device))
        self.model.train()
        return to_numpy(outputs)

    def variant(self, name):
        """Return a part that takes the step's next batch, in its own graph if the step has one.

        FBA and A change what a lossy strategy keeps for the next step; all parts change batch
        norm's running averages. In `stock` DDP sends those averages before each forward pass that
        ends in an aggregation, so their time counts as aggregation.
        """
        if not self.aggregation.timed_in_parts:
            raise Unsupported(f"strategy '{self.task.strategy}' sends in the midst of forward and "
                              "backward: no part of its step is an aggregation")
        if name == "A":
            return Part(self.aggregation.alone(), self.synchronize)
        parts = {"F": self._forward, "FB": self._local_gradients, "FBA": self._mean_gradients}
        if name not in parts:
            return super().variant(name)
        work = self.fit(parts[name])
        return Part(lambda: work(*self.next_batch()), self.synchronize)

    def peak_memory(self):
        """Return the peak of reserved bytes: memory of CUDA graphs is reserved, not allocated."""
        return torch.cuda.max_memory_reserved()

    def profile(self, run):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
            run()
        return [(event.name, event.thread, event.time_range.start * 1e-6,
                 event.time_range.end * 1e-6) for event in recorded.events()]

    @staticmethod
    def return_memory():
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    @staticmethod
    def product(size, task):
        refuse_what_is_missing(task)
        set_arithmetic(task)
        torch.manual_seed(task.seed)
        kind = AUTOCAST.get(task.precision, torch.float32)
        left, right = (torch.randn(size, size, device=task.device).to(kind) for _ in range(2))
        return Product(lambda: left @ right, waiting(task))

    @staticmethod
    def stream(elements, task):
        refuse_what_is_missing(task)
        set_arithmetic(task)
        source, target = (torch.ones(elements, device=task.device) for _ in range(2))
        return Product(lambda: torch.mul(source, 3.0, out=target), waiting(task))

    def differentiate(self, inputs, targets):
        """Run forward and backward, and return the loss. DDP averages gradients meanwhile."""
        self.optimizer.zero_grad()
        return self.aggregation.differentiate(self.mean_loss, self.scaler, inputs, targets)

    def fit(self, work):
        """Return `work(inputs, targets)` as this tier runs it, on a batch from anywhere."""
        if "CUDA graph" in self.settings:
            return self._capture(work)
        return lambda inputs, targets: work(*self._on_device(inputs, targets))

    def _forward(self, inputs, targets):
        with self.aggregation.local():
            return self.mean_loss(inputs, targets).detach()

    def _local_gradients(self, inputs, targets):
        with self.aggregation.local():
            return self.differentiate(inputs, targets)

    def _mean_gradients(self, inputs, targets):
        loss = self.differentiate(inputs, targets)
        self.aggregation.aggregate()
        return loss

    def _train(self, inputs, targets):
        loss = self._mean_gradients(inputs, targets)
        if self.decay is not None:
            trained = [each for group in self._trained() for each in group["params"]]
            torch._foreach_add_([parameter.grad for parameter in trained],
                                torch._foreach_mul([each.detach() for each in trained], self.decay))
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        return loss

    def _loss(self, inputs, targets):
        # Autocast is inside the compiled function: outside, an fp16 run had the errors of a bf16
        # run before it (torch 2.11).
        with self._autocast():
            logits = self.replica(inputs)  # (B, K) or (B, T, K)
            return self.loss_function(logits.flatten(0, -2), targets.flatten())

    def _autocast(self):
        kind = AUTOCAST.get(self.task.precision)
        return torch.autocast(self.device.type, kind) if kind else contextlib.nullcontext()

    def _capture(self, work):
        network, batch = self.task.network, self.task.batch
        inputs = self._in_layout(zeros(network, batch, self.device))
        targets = torch.zeros(batch, *network["target_shape"], dtype=torch.long,
                              device=self.device)
        several = self.task.ranks > 1
        return compiling.captured(work, (inputs, targets), parallel.WARM_UP_STEPS if several
                                  else compiling.WARM_UP_CALLS)

    def _on_device(self, inputs, targets):
        return inputs.to(self.device), targets.to(self.device)

    def _layout(self):
        return torch.channels_last if self.keeps_channels_last else torch.contiguous_format

    def _in_layout(self, inputs):
        return inputs.contiguous(memory_format=self._layout())

    def _place(self, inputs, targets, residence):
        inputs = self._in_layout(inputs)
        if self.task.network["vocabulary"]:
            inputs = inputs.long()
        if residence == "device":
            return self._on_device(inputs, targets)
        if "pinned host memory" in self.settings:
            return inputs.pin_memory(), targets.pin_memory()
        return inputs.clone(), targets.clone()

    def _batch_norms(self):
        return {name: part for name, part in self.model.parts.items()
                if isinstance(part, nn.BatchNorm2d)}

    def _trained(self):
        """Group trained parameters by type: one optimiser call takes no mix with DTensors."""
        kinds = {}
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                kinds.setdefault(type(parameter.data), []).append(parameter)
        return [{"params": parameters} for parameters in kinds.values()]

    def _parameters(self):
        theirs = dict(self.model.named_parameters())
        return {ours: theirs[name] for ours, name in self.held_names.items()}


def refuse_what_is_missing(task):
    protocol.refuse_unknown(task)
    if task.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported("torch.cuda.is_available() is False in this environment")
    if (task.device == "cpu" and task.precision in AUTOCAST
            and any(layer["op"] == "lstm" for layer in task.network["layers"])):
        try:
            with torch.no_grad(), torch.autocast("cpu", AUTOCAST[task.precision]):
                nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
        except RuntimeError as error:
            # oneDNN has such kernels for AVX-512 only.
            raise Unsupported("{} LSTM on this processor: {}".format(
                task.precision, str(error).split(". ")[0])) from error


def tiers(task):
    """Return what each tier sets, as PyTorch's performance guide names it."""
    images = len(task.network["input_shape"]) == 3
    compiled = ["torch.compile", *parallel.compile_settings(task)]
    guide = ["fused SGD", *(["channels_last"] if images else [])]
    if task.device == "cuda":
        guide += ["CUDA graph", "cuDNN benchmark", "pinned host memory"]
    if task.ranks > 1:
        guide += parallel.settings(task)
    return {"stock": [], "compiled": compiled, "tuned": compiled + guide,
            "uncompiled": "PyTorch's stock is eager"}


def set_arithmetic(task):
    """fp32 is IEEE fp32: PyTorch keeps TF32 on in cuDNN unless told otherwise."""
    if task.device == "cpu":
        torch.set_num_threads(task.threads)
    tf32 = task.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def waiting(task):
    return lambda result: torch.cuda.synchronize() if task.device == "cuda" else None


def all_to_numpy(tensors):
    """Return tensors by name as float32 arrays.

    A GPU writes to pinned memory, which PyTorch keeps for the next time: AlexNet's 245 MB took an
    H100 5 ms so, and 178 ms by `Tensor.cpu`, which waits for new pages.
    """
    values = {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}
    pinned = {name: torch.empty_like(value, device="cpu", pin_memory=True).copy_(
                  value, non_blocking=True)
              for name, value in values.items() if value.is_cuda}
    if pinned:
        torch.cuda.synchronize()
    return {name: value.numpy() for name, value in dict(values, **pinned).items()}


def to_numpy(tensor):
    return all_to_numpy({"": tensor})[""]
