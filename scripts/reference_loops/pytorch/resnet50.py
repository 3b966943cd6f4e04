"""ResNet-50 of torchvision."""

import torch
from torchvision.models import resnet50


def build(options):
    images = torch.randn(options.batch, 3, 224, 224)
    return resnet50(), images, torch.randint(1000, (options.batch,)), 0.01
