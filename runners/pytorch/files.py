"""Image files by PyTorch's own loader: a `Dataset` of single files and a `DataLoader` with workers.

Pillow decodes, as in torchvision's `ImageFolder`; a sample is normalised as its `ToTensor` and
`Normalize` do. There is a worker for each processor, up to eight.
"""

import itertools
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

MOST_WORKERS = 8
# Batches that a worker keeps ready, its default.
PREFETCH = 2


class ImageFiles(Dataset):
    """Single samples: an image (C, H, W) as the network takes it, and its label."""

    def __init__(self, described):
        self.paths, self.labels = described["paths"], described["labels"].tolist()
        self.mean, self.deviation = (torch.from_numpy(described[name])[:, None, None]
                                     for name in ("mean", "deviation"))
        self.mode = "RGB" if len(self.mean) == 3 else "L"

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        with Image.open(self.paths[number]) as file:
            pixels = np.array(file.convert(self.mode))
        image = torch.from_numpy(np.atleast_3d(pixels)).permute(2, 0, 1)  # (H, W, C) -> (C, H, W)
        return (image.float() / 255 - self.mean) / self.deviation, self.labels[number]


class InOrder:
    """A sampler: the driver's order again and again."""

    def __init__(self, order):
        self.order = order

    def __iter__(self):
        return itertools.cycle(self.order)


class Collate:
    """Batches in the layout that the step takes; a class, because a loader's process is sent it."""

    def __init__(self, layout):
        self.layout = layout

    def __call__(self, samples):
        images, labels = default_collate(samples)
        return images.contiguous(memory_format=self.layout), labels


def load(described, batch, cuda, layout):
    """Return the loader's settings in words, its endless batches, and how many may lie ready.

    Images have the memory format `layout`.
    """
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
    loader = DataLoader(ImageFiles(described), batch, sampler=InOrder(described["order"].tolist()),
                        num_workers=workers, pin_memory=cuda, collate_fn=Collate(layout),
                        prefetch_factor=PREFETCH)
    return f"DataLoader: {workers} worker{'s' * (workers > 1)}", loader, PREFETCH * workers
