"""ViT-B/16 of torchvision."""

import torch
from torchvision.models import vit_b_16


def build(options):
    images = torch.randn(options.batch, 3, 224, 224)
    return vit_b_16(), images, torch.randint(1000, (options.batch,)), 0.01
