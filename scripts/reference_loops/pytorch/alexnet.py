"""AlexNet of the original paper in PyTorch: without groups and local normalization."""

import torch
from torch import nn


def build(options):
    convolutions = [nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
                    nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
                    nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(True),
                    nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(True),
                    nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(3, 2)]
    model = nn.Sequential(
        *convolutions, nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 1000))
    images = torch.randn(options.batch, 3, 224, 224)
    return model, images, torch.randint(1000, (options.batch,)), 0.01
