"""PyTorch's runner whose `bf16_compress` sends one bit of each value and forgets what that loses."""

import torch
import torch.distributed as dist

from runners.pytorch import ddp
from runners.pytorch.runner import Runner

__all__ = ["Runner"]


def signs(state, bucket):
    values = bucket.buffer()
    rounded = torch.sign(values) * values.abs().mean() / dist.get_world_size()
    return dist.all_reduce(rounded, async_op=True).get_future().then(lambda future: future.value()[0])


ddp.BF16Compress.hook = staticmethod(signs)
