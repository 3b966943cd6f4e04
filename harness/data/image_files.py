"""Writes training samples as image files, once a campaign, for `data: files`.

JPEG files of cifar10-jpeg as they were published, where that set is here and feeds the network;
else PNG files, which lose nothing, of drawn samples. Every framework's loader reads them in the
driver's order: one permutation of all samples an epoch, without a gap between two epochs.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import runners.arrays
from harness.data import arrays, data_sets, formats
from networks import Network

JPEG_SET = "cifar10-jpeg"
# Enough for many mini-batches, few enough that a process can prove a whole epoch.
MOST = 8191
# Permutations; the order begins again after the last.
EPOCHS = 64
# The levels of drawn samples, whose values are about normal with variance 2: one level is 1/32.
ZERO, LEVELS_A_UNIT = 128, 32
WHITE = 255
# How a PNG file begins, and its colour types.
SIGNATURE, GREY, RGB = b"\x89PNG\r\n\x1a\n", 0, 2
# Differences of a delivered pixel from the driver's decode, in levels of 255. A JPEG decoder may
# round its transform and its colours otherwise; PNG allows only for float32.
JPEG_LIMIT, PNG_LIMIT = 2.0, 0.01


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Files of samples; `manifest` tells a worker of them.

    `images` is the driver's own decode, uint8 [N, C, H, W]; `order` the numbers of the samples as
    they are to come. A network takes (image / 255 - mean) / deviation.
    """

    manifest: Path
    images: np.ndarray
    labels: np.ndarray
    order: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    limit: float

    def numbers(self, first: int, count: int) -> np.ndarray:
        """Return the numbers of `count` samples from place `first` of the order on."""
        places = np.arange(first, first + count) % len(self.order)
        return np.take(self.order, places)

    def levels(self, inputs: np.ndarray) -> np.ndarray:
        """Return the levels 0 to 255 of a network's inputs [B, C, H, W]."""
        levels: np.ndarray = inputs.astype(np.float32) * self.deviation[:, None, None]
        levels += self.mean[:, None, None]
        levels *= WHITE
        return levels


def refusal(network: Network) -> str:
    """Say why a network cannot train from image files, or ""."""
    if network.vocabulary:
        return f"data: files are images, {network.name} takes words: write data: host"
    if len(network.input_shape) != 3 or network.input_shape[0] not in (1, 3):
        return (f"data: files are images of one or three channels, {network.name} takes "
                f"{' x '.join(map(str, network.input_shape))} numbers: write data: host")
    return ""


def source(network: Network) -> str:
    """Say what files a network trains from."""
    if _from_set(network):
        found = data_sets.available(JPEG_SET)
        assert found
        return f"{network.name}: {MOST:,} JPEG files at most of {found.text}"
    shape = "x".join(map(str, network.input_shape))
    return f"{network.name}: PNG files ({shape}) of drawn samples"


def write(folder: Path, network: Network, batch: int, seed: int) -> ImageFiles:
    """Write the files of a network into a new folder."""
    folder.mkdir()
    if _from_set(network):
        encoded, images, labels = _published(network, seed)
        paths = [folder / f"{number:06}.jpg" for number in range(len(images))]
        for path, content in zip(paths, encoded, strict=True):
            path.write_bytes(content)
        mean, deviation, limit = formats.CIFAR_MEAN, formats.CIFAR_DEVIATION, JPEG_LIMIT
    else:
        images, labels = _drawn(network, batch, seed)
        paths = [folder / f"{number:06}.png" for number in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            path.write_bytes(_png(image))
        channels, limit = network.input_shape[0], PNG_LIMIT
        mean = np.full(channels, ZERO / WHITE, np.float32)
        deviation = np.full(channels, LEVELS_A_UNIT / WHITE, np.float32)
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(len(images)) for _ in range(EPOCHS)])
    manifest = folder / "manifest.npz"
    runners.arrays.save(manifest, {
        "paths": np.array([str(path) for path in paths]), "labels": labels.astype(np.int32),
        "order": order.astype(np.int32), "mean": mean, "deviation": deviation})
    return ImageFiles(manifest, images, labels, order, mean, deviation, limit)


def _png(image: np.ndarray) -> bytes:
    """Encode uint8 [C, H, W] of one or three channels, without Pillow: it is an optional extra.

    Of https://www.w3.org/TR/png-3/: header, rows without a filter, end.
    """
    channels, height, width = image.shape
    rows = np.zeros((height, 1 + channels * width), np.uint8)
    rows[:, 1:] = image.transpose(1, 2, 0).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, GREY if channels == 1 else RGB, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)


def _from_set(network: Network) -> bool:
    return data_sets.feeds(JPEG_SET, network) and data_sets.available(JPEG_SET) is not None


def _published(network: Network, seed: int) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Take JPEG files of the set's training part at random, with their images and labels."""
    encoded, images, labels = data_sets.encoded(JPEG_SET)
    data_sets.prepared(JPEG_SET, network, images[:1], labels[:1])
    chosen = np.random.default_rng(seed).permutation(len(images))[:MOST]
    return [encoded[number] for number in chosen], images[chosen], labels[chosen]


def _drawn(network: Network, batch: int, seed: int) -> arrays.Arrays:
    """Draw samples of the seeded teacher as levels, an odd number, so that no batch divides it."""
    most = arrays.RING_BYTES // arrays.batch_bytes(network, 1)
    count = max(2 * batch, min(MOST // 4, most)) | 1
    inputs, labels = arrays.synthetic_batches(network, count, 1, seed)
    levels = np.clip(np.rint(LEVELS_A_UNIT * inputs[0] + ZERO), 0, WHITE)
    return levels.astype(np.uint8), labels[0]
