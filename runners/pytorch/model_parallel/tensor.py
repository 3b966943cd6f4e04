"""Tensor parallelism: ranks divide each product, by PyTorch's DTensor and `parallelize_module`.

Dense layers are divided in pairs (`divisible`): the first by outputs, the second by inputs. The
forward pass then needs one all-reduce of activations, behind the pair. The backward pass needs one
of their gradients, before the pair. An embedding with a tied head is divided by words, and the loss
is computed from divided logits. All ranks see the whole global batch.
"""

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from runners.divisible import pairs
from runners.protocol import Unsupported
from runners.pytorch.model_parallel.base import ModelParallel


class Tensor(ModelParallel):
    whole_batch = True

    def __init__(self, model, task):
        super().__init__(task)
        self.devices = task.ranks
        layers = {layer["name"]: layer for layer in task.network["layers"]}
        self.pairs = pairs(task.network, self.devices)
        if not self.pairs:
            raise Unsupported(f"strategy 'tensor': {task.network['name']} has no two dense layers "
                              "that follow one another")
        self.tied = {name: layer["attributes"]["tied"] for name, layer in layers.items()
                     if layer["op"] == "tied_dense"}
        # Layers whose output is q, k and v side by side: each rank takes those of its heads.
        self.packed = {layer["inputs"][0] for layer in layers.values()
                       if layer["op"] == "attention"} & {first for first, _ in self.pairs}
        parallelize_module(model, self.mesh, self.plan())
        for head, table in self.tied.items():
            model.parts[head].weight = model.parts[table].weight
        for name, layer in layers.items():
            if layer["op"] == "attention" and layer["inputs"][0] in self.packed:
                model.parts[name].heads //= self.devices

    def plan(self):
        """Return how each divided module is divided, in the words of `parallelize_module`."""
        found = {}
        for first, second in self.pairs:
            found[f"parts.{first}"] = ColwiseParallel()
            found[f"parts.{second}"] = self.row_parallel()
        for head, table in self.tied.items():
            found[f"parts.{table}"] = RowwiseParallel(input_layouts=Replicate())
            found[f"parts.{head}"] = ColwiseParallel(output_layouts=Shard(-1),
                                                     use_local_output=False)
        return found

    @staticmethod
    def row_parallel():
        return RowwiseParallel()

    def settings(self):
        words = [f"{first}+{second}" for first, second in self.pairs]
        words += [f"{table}+{head}" for head, table in self.tied.items()]
        return [f"divided products: {', '.join(words)}"]

    def differentiate(self, loss_of, scaler, inputs, targets):
        with loss_parallel():
            loss = super().differentiate(loss_of, scaler, inputs, targets)
        return loss.full_tensor() if isinstance(loss, DTensor) else loss

    def put(self, parameters, weights):
        own = {name: self._by_device(value) if name.partition(".")[0] in self.packed else value
               for name, value in weights.items()}
        super().put(parameters, own)

    def whole(self, parameters):
        return {name: self._by_kind(value) if name.partition(".")[0] in self.packed else value
                for name, value in super().whole(parameters).items()}

    def _by_device(self, packed):
        """Reorder rows from (q k v) x devices x features to devices x (q k v) x features."""
        parts = packed.reshape(3, self.devices, -1, *packed.shape[1:])
        return parts.swapaxes(0, 1).reshape(packed.shape)

    def _by_kind(self, packed):
        parts = packed.reshape(self.devices, 3, -1, *packed.shape[1:])
        return torch.transpose(parts, 0, 1).reshape(packed.shape)
