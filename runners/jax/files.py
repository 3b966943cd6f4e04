"""Image files by Grain, the loader of JAX's documentation; Pillow decodes.

Grain reads single samples with threads of this process, which is its default, and keeps 500 ready.
Batched before that, it would keep 500 batches.
"""

import grain
import numpy as np
from PIL import Image


def load(described, batch):
    """Return the loader's settings in words, its endless batches, and how many may lie ready.

    Images are N H W C.
    """
    paths, labels = described["paths"], described["labels"]
    mean, deviation = described["mean"], described["deviation"]
    mode = "RGB" if len(mean) == 3 else "L"

    def read(number):
        with Image.open(paths[number]) as file:
            pixels = np.array(file.convert(mode))
        image = np.atleast_3d(pixels).astype(np.float32) / 255  # (H, W, C)
        return (image - mean) / deviation, labels[number]

    options = grain.ReadOptions()
    samples = grain.MapDataset.source(described["order"].tolist()).repeat().map(read)
    return (f"Grain {grain.__version__}: {options.num_threads} threads",
            samples.to_iter_dataset(options).batch(batch),
            options.prefetch_buffer_size // batch + 1)
