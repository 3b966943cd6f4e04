"""ViT-B/16 of torchvision."""

import windows

options = windows.arguments(("stock", "compiled", "tuned"))

import pytorch_training  # noqa: E402
import torch  # noqa: E402
from torchvision.models import vit_b_16  # noqa: E402

images = torch.randn(options.batch, 3, 224, 224)
pytorch_training.train(vit_b_16(), images, torch.randint(1000, (options.batch,)), 0.01, options)
