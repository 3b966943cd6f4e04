"""FCN-5 of DLBench in PyTorch: 784-2048-4096-1024-10 with sigmoids."""

import torch
from torch import nn


def build(options):
    model = nn.Sequential(
        nn.Linear(784, 2048), nn.Sigmoid(), nn.Linear(2048, 4096), nn.Sigmoid(),
        nn.Linear(4096, 1024), nn.Sigmoid(), nn.Linear(1024, 10))
    return model, torch.randn(options.batch, 784), torch.randint(10, (options.batch,)), 0.05
