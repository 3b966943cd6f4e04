"""PyTorch's runner whose `power_sgd` sends rank 0's matrices only, in place of the mean over all ranks."""

import torch.distributed as dist

from runners import pytorch_ddp
from runners.pytorch_runner import Runner

__all__ = ["Runner"]
powerSGD_hook = pytorch_ddp.PowerSGD.hook


def of_one_rank(state, bucket):
    if state.iter >= pytorch_ddp.VANILLA_STEPS:
        for gradient in bucket.gradients():
            if gradient.dim() > 1:
                dist.broadcast(gradient, 0)
    return powerSGD_hook(state, bucket)


pytorch_ddp.PowerSGD.hook = staticmethod(of_one_rank)
