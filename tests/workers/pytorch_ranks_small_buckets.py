"""PyTorch's runner with a bucket for nearly every tensor: small networks then have several, as large ones do."""

import torch.distributed as dist

from runners.pytorch import parallel
from runners.pytorch.runner import Runner

__all__ = ["Runner"]
DistributedDataParallel = parallel.DistributedDataParallel
dist._DEFAULT_FIRST_BUCKET_BYTES = 64


def in_small_buckets(model, **options):
    return DistributedDataParallel(model, bucket_cap_mb=64 / 2**20, **options)


parallel.DistributedDataParallel = in_small_buckets
