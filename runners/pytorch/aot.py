"""PyTorch's AOTInductor: the model that `inference` runs, exported and compiled ahead of time.

`torch.export` writes the graph, Inductor makes one package of machine code and weights, and calls
run the package alone. `tuned` adds what Inductor's documentation names for inference.
"""

import os
import tempfile

import torch
import torch._inductor

from runners.protocol import Unsupported
from runners.pytorch.inference import PyTorch


class Whole(torch.nn.Module):
    """A model with its autocast inside, as `torch.export` takes it."""

    def __init__(self, engine):
        super().__init__()
        self.model, self.call = engine.model, engine._run

    def forward(self, inputs):
        return self.call(inputs)


class AotInductor(PyTorch):
    @staticmethod
    def tiers(task):
        tuned = ["frozen weights"]
        if len(task.network["input_shape"]) == 3:
            tuned.append("channels_last")
        return {"stock": [], "compiled": [], "tuned": tuned,
                "uncompiled": "AOTInductor compiles every network"}

    def compiled(self):
        zeros = torch.zeros(self.task.batch, *self.task.network["input_shape"])
        self.on_device = True
        example = self._place(zeros)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            file = os.path.join(folder, "model.pt2")
            try:
                exported = torch.export.export(Whole(self), (example,), strict=False)
                torch._inductor.aoti_compile_and_package(exported, package_path=file)
            except (torch._dynamo.exc.UserError, NotImplementedError) as error:
                raise Unsupported("AOTInductor: " + str(error).strip().splitlines()[0]) from error
            self.model_bytes = os.path.getsize(file)
            return torch._inductor.aoti_load_package(file)
