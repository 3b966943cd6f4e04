"""FCN-5 of DLBench in PyTorch: 784-2048-4096-1024-10 with sigmoids."""

import windows

options = windows.arguments(("stock", "compiled", "tuned"))

import pytorch_training  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

model = nn.Sequential(
    nn.Linear(784, 2048), nn.Sigmoid(), nn.Linear(2048, 4096), nn.Sigmoid(),
    nn.Linear(4096, 1024), nn.Sigmoid(), nn.Linear(1024, 10))
features, labels = torch.randn(options.batch, 784), torch.randint(10, (options.batch,))
pytorch_training.train(model, features, labels, 0.05, options)
