"""ResNet-50 of torchvision."""

import windows

options = windows.arguments(("stock", "compiled", "tuned"))

import pytorch_training  # noqa: E402
import torch  # noqa: E402
from torchvision.models import resnet50  # noqa: E402

images = torch.randn(options.batch, 3, 224, 224)
pytorch_training.train(resnet50(), images, torch.randint(1000, (options.batch,)), 0.01, options)
