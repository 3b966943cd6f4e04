"""PyTorch running trained networks: `runner.Net` in eval mode under `torch.inference_mode`.

`stock` is eager, `compiled` adds `torch.compile`. `tuned` adds what PyTorch's performance guide and
Inductor's documentation name for inference: constants folded into the code, channels-last images
and, on a GPU, one CUDA graph of the whole call. Mixed precision is `torch.autocast` in all.
"""

import contextlib

import torch
import torch._inductor.config

from runners import protocol
from runners.inference import Engine, trained
from runners.pytorch import compiling
from runners.pytorch.runner import (
    AUTOCAST,
    PARAMETER_NAMES,
    Net,
    output_shapes,
    refuse_what_is_missing,
    set_arithmetic,
    to_numpy,
    trained_shapes,
    zeros,
)
from runners.pytorch.runner import Runner as Trainer

STATISTICS = {"mean": "running_mean", "variance": "running_var"}


class PyTorch(Engine):
    describe = staticmethod(Trainer.describe)
    return_memory = staticmethod(Trainer.return_memory)

    def __init__(self, task, arrays):
        refuse_what_is_missing(task)
        self.task, self.device = task, torch.device(task.device)
        self.settings = protocol.settings_of(task, self.tiers(task))
        torch._dynamo.reset()
        set_arithmetic(task)
        torch.backends.cudnn.benchmark = "cuDNN benchmark" in self.settings
        torch._inductor.config.freezing = "frozen weights" in self.settings
        self.model = Net(task.network).to(self.device)
        names = protocol.native_names(task.network, PARAMETER_NAMES)
        shapes = trained_shapes(self.model, names)
        protocol.assert_network(task.network,
                                output_shapes(self.model, task.network, self.device), shapes)
        self._load(arrays, names)
        self.model.eval()
        if "channels_last" in self.settings:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.run = self.compiled()

    def compiled(self):
        """Return the function of a batch that is called."""
        run = self._run
        if "torch.compile" in self.settings:
            run = compiling.compiled(run, self.task.device)
        if "CUDA graph" in self.settings:
            # Not by `reduce-overhead`: torch.compile leaves `nn.LSTM` out of its own graphs.
            inputs = self._in_layout(zeros(self.task.network, self.task.batch, self.device))
            with torch.no_grad():
                run = compiling.captured(run, (inputs,))
        return run

    def parameter_count(self):
        return sum(parameter.numel() for parameter in self.model.parameters()
                   if parameter.requires_grad)

    def feed(self, inputs, targets, residence):
        self.on_device = residence == "device"
        self.ring = [self._place(batch) for batch in torch.from_numpy(inputs)]
        self.position = 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def step(self):
        # Not under `inference_mode` where weights are frozen: Inductor reads their versions.
        with torch.no_grad() if "frozen weights" in self.settings else torch.inference_mode():
            batch = self.next_batch()
            # A graph copies the batch itself.
            self.outputs = self.run(batch if "CUDA graph" in self.settings else
                                    batch.to(self.device))
            if not self.on_device:
                self.outputs = self.outputs.cpu()

    synchronize = Trainer.synchronize
    peak_memory = Trainer.peak_memory
    profile = Trainer.profile

    def output(self, rows):
        return to_numpy(self.outputs.flatten(0, -2)[rows])

    @staticmethod
    def tiers(task):
        """Return what each tier sets."""
        compiled = ["torch.compile"]
        tuned = [*compiled, "frozen weights"]
        if len(task.network["input_shape"]) == 3:
            tuned.append("channels_last")
        if task.device == "cuda":
            tuned += ["CUDA graph", "cuDNN benchmark", "pinned host memory"]
        return {"stock": [], "compiled": compiled, "tuned": tuned,
                "uncompiled": "PyTorch's stock is eager"}

    def _run(self, inputs):
        kind = AUTOCAST.get(self.task.precision)
        with torch.autocast(self.device.type, kind) if kind else contextlib.nullcontext():
            return self.model(inputs)

    def _load(self, arrays, names):
        held = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, array in trained(arrays).items():
                held[names[name]].copy_(torch.from_numpy(array))
            for layer in self.task.network["layers"]:
                if layer["op"] == "batch_norm":
                    part = self.model.parts[layer["name"]]
                    for ours, theirs in STATISTICS.items():
                        array = arrays[f"{layer['name']}.{ours}"]
                        getattr(part, theirs).copy_(torch.from_numpy(array))

    def _in_layout(self, batch):
        if "channels_last" in self.settings:
            return batch.contiguous(memory_format=torch.channels_last)
        return batch

    def _place(self, batch):
        batch = self._in_layout(batch)
        if self.task.network["vocabulary"]:
            batch = batch.long()
        if self.on_device:
            return batch.to(self.device)
        return batch.pin_memory() if "pinned host memory" in self.settings else batch
