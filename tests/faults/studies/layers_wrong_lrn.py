"""PyTorch's layers with LRN as AlexNet's paper writes it: alpha is not divided by the size."""

import torch.nn.functional as F

from runners.studies.layers import bench_pytorch, reference
from runners.studies.layers.bench_pytorch import Bench

__all__ = ["Bench"]

bench_pytorch.OPERATIONS["lrn"] = lambda t, p: F.local_response_norm(
    t["x"], reference.LRN_SIZE, reference.LRN_ALPHA * reference.LRN_SIZE, reference.LRN_BETA,
    reference.LRN_K)
