"""Fully sharded data parallelism by PyTorch's `fully_shard` (FSDP2).

Each rank keeps an n-th of parameters, gradients and momentum, and trains on its own part of the
batch. A group of layers is gathered before it computes, forward and backward, and its gradients are
averaged and scattered. What a tied head shares is gathered once: it stays between both passes.
"""

from torch.distributed.fsdp import fully_shard

from runners.pytorch.model_parallel import divide
from runners.pytorch.model_parallel.base import ModelParallel


class FSDP(ModelParallel):
    def __init__(self, model, task):
        super().__init__(task)
        tied = {layer["attributes"]["tied"] for layer in task.network["layers"]
                if "tied" in layer["attributes"]}
        self.groups = [segment for segment in divide.segments(task.network)
                       if not tied & set(segment) and any(
                           list(model.parts[name].parameters()) for name in segment)
                       and not any("tied" in layer["attributes"] for layer in
                                   task.network["layers"] if layer["name"] in segment)]
        for group in self.groups:
            trained = [model.parts[name] for name in group if list(model.parts[name].parameters())]
            fully_shard(trained, mesh=self.mesh, reshard_after_forward=True)
        self.rest = tied
        fully_shard(model, mesh=self.mesh)

    def settings(self):
        kept = [f"kept between the passes: {', '.join(sorted(self.rest))}"] if self.rest else []
        return [f"gathered in groups that end with {divide.named(self.groups)}", *kept]
