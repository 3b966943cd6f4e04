"""Fully sharded data parallelism by PyTorch's `fully_shard` (FSDP2).

Each rank keeps an n-th of parameters, gradients and momentum, and trains on its own part of the
batch. A group of layers is gathered before it computes, forward and backward, and its gradients are
averaged and scattered. A table that a tied head shares is gathered once and kept for both passes.
"""

from torch.distributed.fsdp import fully_shard

from runners.pytorch.model_parallel import divide
from runners.pytorch.model_parallel.base import ModelParallel


class FSDP(ModelParallel):
    def __init__(self, model, task):
        super().__init__(task)
        # A tied head -> the embedding whose table it shares.
        tied = {layer["name"]: layer["attributes"]["tied"] for layer in task.network["layers"]
                if "tied" in layer["attributes"]}
        self.groups, self.tables = [], set(tied.values())
        for segment in divide.segments(task.network):
            trained = [model.parts[name] for name in segment
                       if list(model.parts[name].parameters())]
            if trained and not {*tied, *self.tables} & set(segment):
                fully_shard(trained, mesh=self.mesh, reshard_after_forward=True)
                self.groups.append(segment)
        fully_shard(model, mesh=self.mesh)

    def settings(self):
        kept = [f"kept between the passes: {', '.join(sorted(self.tables))}"] if self.tables else []
        return [f"gathered in groups that end with {divide.named(self.groups)}", *kept]
