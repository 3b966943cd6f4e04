"""PyTorch's layers with a fault: LRN's alpha is not divided by the number of channels (AlexNet's paper writes it so)."""

import torch.nn.functional as F

from runners import layer_reference as reference
from runners import layers_pytorch
from runners.layers_pytorch import session

__all__ = ["session"]

layers_pytorch.OPERATIONS["lrn"] = lambda t, p: F.local_response_norm(
    t["x"], reference.LRN_SIZE, reference.LRN_ALPHA * reference.LRN_SIZE, reference.LRN_BETA, reference.LRN_K)
