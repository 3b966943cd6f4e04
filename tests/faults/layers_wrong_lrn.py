"""PyTorch's layers with a fault: LRN's alpha is not divided by the number of channels (AlexNet's paper writes it so)."""

import torch.nn.functional as F

from runners.studies.layers import bench_pytorch, reference
from runners.studies.layers.bench_pytorch import session

__all__ = ["session"]

bench_pytorch.OPERATIONS["lrn"] = lambda t, p: F.local_response_norm(
    t["x"], reference.LRN_SIZE, reference.LRN_ALPHA * reference.LRN_SIZE, reference.LRN_BETA, reference.LRN_K)
