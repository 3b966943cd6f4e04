"""PyTorch's runner whose `power_sgd` sends rank 0's matrices only, in place of the mean over all ranks."""

import torch.distributed as dist

from runners.pytorch import ddp
from runners.pytorch.runner import Runner

__all__ = ["Runner"]
powerSGD_hook = ddp.PowerSGD.hook


def of_one_rank(state, bucket):
    if state.iter >= ddp.VANILLA_STEPS:
        for gradient in bucket.gradients():
            if gradient.dim() > 1:
                dist.broadcast(gradient, 0)
    return powerSGD_hook(state, bucket)


ddp.PowerSGD.hook = staticmethod(of_one_rank)
