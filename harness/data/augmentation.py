"""Random crops and flips of small images, drawn by the driver so that all frameworks train on them.

An image is padded with black by four pixels, cropped to its own size anywhere, and mirrored or not:
the augmentation of ResNet's article for CIFAR-10 (arXiv 1512.03385, 4.2).
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

PADDING = 4
THREADS = 4


def padded(images: np.ndarray) -> np.ndarray:
    """Return uint8 images [N, C, H, W] as [N, H + 8, W + 8, C] with black around them."""
    sides = (PADDING, PADDING)
    return np.pad(images.transpose(0, 2, 3, 1), ((0, 0), sides, sides, (0, 0)))


def augmented(images: np.ndarray, table: np.ndarray, generator: np.random.Generator,
              order: np.ndarray) -> np.ndarray:
    """Crop and mirror the padded images of `order`; return them as float32 [n, H, W, C].

    `table` [C, 256] has the number for each channel's byte.
    """
    count, height, width = len(order), images.shape[1] - 2 * PADDING, images.shape[2] - 2 * PADDING
    shifts = generator.integers(2 * PADDING + 1, size=(count, 2))
    mirrored = generator.random(count) < 0.5
    out = np.empty((count, height, width, images.shape[3]), np.float32)

    def fill(rows: slice) -> None:
        crops = np.empty((rows.stop - rows.start, *out.shape[1:]), np.uint8)
        own, ours = shifts[rows], order[rows]
        for down in range(2 * PADDING + 1):
            for right in range(2 * PADDING + 1):
                chosen = np.flatnonzero((own[:, 0] == down) & (own[:, 1] == right))
                crops[chosen] = images[ours[chosen], down:down + height, right:right + width]
        turned = np.flatnonzero(mirrored[rows])
        crops[turned] = crops[turned, :, ::-1]
        for channel in range(crops.shape[3]):
            out[rows][..., channel] = table[channel][crops[..., channel]]

    # Whole arrays are copied without Python's lock.
    with ThreadPoolExecutor(THREADS) as pool:
        ends = np.linspace(0, count, THREADS + 1).astype(int).tolist()
        list(pool.map(fill, map(slice, ends, ends[1:])))
    return out
