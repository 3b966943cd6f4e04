"""What all strategies with a part of the network on each rank share: gathering, and refusals."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from runners.divisible import refuse_undivided
from runners.protocol import Unsupported
from runners.pytorch.aggregation import Aggregation


class ModelParallel(Aggregation):
    """A rank holds some parameters whole and a shard of others; no gradients are aggregated."""

    timed_in_parts = capturable = False
    parted = True

    def __init__(self, task):
        refuse(task)
        self.mesh = init_device_mesh(task.device, (task.ranks,))

    def put(self, parameters, weights):
        for name, parameter in parameters.items():
            value = torch.from_numpy(weights[name])
            if isinstance(parameter, DTensor):
                value = distribute_tensor(value.to(parameter.device), self.mesh,
                                          parameter.placements, src_data_rank=None).to_local()
                parameter = parameter.to_local()
            parameter.copy_(value)

    def whole(self, parameters):
        return {name: parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                for name, parameter in parameters.items()}

    def held(self, parameters):
        return {name: (parameter.to_local() if isinstance(parameter, DTensor) else parameter)
                .numel() for name, parameter in parameters.items()}


def refuse(task):
    """Raise `Unsupported` for what these strategies do not train here."""
    if task.tuning not in ("stock", "compiled"):
        raise Unsupported(f"strategy '{task.strategy}': its tiers are stock and compiled")
    if task.precision == "fp16":
        raise Unsupported(f"strategy '{task.strategy}': the loss scale of fp16 would need every "
                          "rank's gradients; bf16 needs none")
    refuse_undivided(task)
