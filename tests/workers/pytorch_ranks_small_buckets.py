"""PyTorch's runner with a bucket for nearly every tensor: small networks then have several, as large ones do."""

import torch.distributed as dist

from runners import pytorch_parallel
from runners.pytorch_runner import Runner

__all__ = ["Runner"]
DistributedDataParallel = pytorch_parallel.DistributedDataParallel
dist._DEFAULT_FIRST_BUCKET_BYTES = 64


def in_small_buckets(model, **options):
    return DistributedDataParallel(model, bucket_cap_mb=64 / 2**20, **options)


pytorch_parallel.DistributedDataParallel = in_small_buckets
