"""The arrays that every framework starts from: seeded weights and synthetic mini-batches.

Each tensor and each mini-batch has its own random stream, keyed by its name, so adding a layer or
lengthening a ring leaves the others as they were. Real sets are in `harness.data.data_sets`.
"""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

import runners.arrays
from networks import Layer, Network

Arrays = tuple[np.ndarray, np.ndarray]

# Enough that a step never finds the last step's batch in a cache.
RING_BATCHES = 8
# A ring is a file, a copy in host memory and sometimes device memory.
RING_BYTES = 512 * 2**20

# Variance gains by the operation behind a product; the first that is met counts. Before batch norm,
# He's 2 (arXiv 1502.01852): only the ratio of weights and steps matters there. Elsewhere the
# published learning rates decide: with He's 2 AlexNet-S at 0.01 starts at a loss of 36 and is NaN
# within 16 steps. With 0.4 before 3x3 max pooling (which lifts ReLU's mean square of 0.5 to 2.6)
# and 0.5 before other ReLUs it falls. A sigmoid's slope is at most 1/4, so 16 keeps the difference
# between two samples; with 4 it halves at every layer. Behind the last product, 1 starts logits
# below one.
# A standard deviation of 2 tells GELU's two forms apart best.
GAINS = {"batch_norm": 2.0, "max_pool": 0.4, "sigmoid": 16.0, "relu": 0.5, "gelu": 4.0,
         "swiglu": 2.0, "": 1.0}
# GPT-2's own, of words, positions and the class token.
TOKEN_SCALE = 0.02
# With this many products ReLU's 0.5 would leave no variance, so He's 2.
DEEP, DEEP_RELU = 12, 2.0
# On inputs of variance 1 instead of pixels, LRN would be the identity to 1e-4.
LRN_SCALE = 4.0
# Not zero: a runner that loses a bias must show in the loss.
BIAS_RANGE = 0.05
EMBEDDING_SCALE = 0.1
PRODUCTS = ("dense", "conv2d", "lstm", "linear")
# In standard deviations: at 2 some ReLUs still turn, at 3 the shifts' own gradients cancel.
KINK_DISTANCE = 2.5

# Labels that occur. Of 26752 labels each would occur once in a ring. With few labels, steps of 0.05
# on sigmoid features pass momentum's stability limit: at batch 32 the loss of fcns leapt to 34 with
# 10 labels and to 15 with 100; with 300 it fell from 10.3 to 1.3 in 30 steps.
LABELS = 300
# Images carry 4x4 coarse patterns, which pass pooling and strided convolutions.
PATTERN_SIDE = 4
# How many words may follow a word.
SUCCESSORS = 4


def draw_weights(network: Network, seed: int) -> dict[str, np.ndarray]:
    """Draw every trained tensor in float32, by full name `layer.parameter` in canonical layout.

    Dense and convolution weights are normal with variance gain / fan_in, LSTM's uniform within
    1 / sqrt(units), norms' scale and shift 1 + 0.1 n and 0.1 n with n standard normal.
    """
    weights = {}
    for layer in network.layers:
        for parameter, shape in layer.parameters.items():
            name = f"{layer.name}.{parameter}"
            weights[name] = _draw(_stream(seed, name), network, layer, parameter, shape)
    return weights


def away_from_kinks(network: Network, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Move batch norms' shifts so that the ReLU behind each rarely meets zero. Returns new arrays.

    At ReLU's kink a rounding error turns a gradient on or off. Among ResNet-50's tens of millions
    of pre-activations some always lie that close: correct fp32 gradients then differ by 2e-2 from
    float64, and a check could not tell them from TF32. With shifts `KINK_DISTANCE` standard
    deviations from zero they differ by about 1e-4 at most. Every fourth channel lies below zero,
    the same ones throughout, and branches have a quarter of the scale: additions keep the distance.
    """
    branches = {source for layer in network.layers if layer.op == "add" for source in layer.inputs}
    moved = dict(weights)
    for layer in network.layers:
        if layer.op == "batch_norm":
            factor = np.float32(0.25 if layer.name in branches else 1)
            scale = weights[f"{layer.name}.scale"] * factor
            side = np.where(np.arange(scale.size) % 4 == 3, np.float32(-1), np.float32(1))
            moved[f"{layer.name}.scale"] = scale
            moved[f"{layer.name}.shift"] = np.float32(KINK_DISTANCE) * side * np.abs(scale)
    return moved


def synthetic_batches(network: Network, batch: int, count: int, seed: int) -> Arrays:
    """Draw `count` mini-batches whose targets follow from their inputs, so that the loss can fall.

    Returns inputs [count, B, *input_shape] (float32, or int32 word numbers) and int32 targets
    [count, B] or [count, B, T]. Features and images are noise plus the pattern of their label.
    Words are a Markov chain; the target is the next word.
    """
    if network.vocabulary:
        return _word_batches(network, batch, count, seed)
    return _pattern_batches(network, batch, count, seed)


def ring_length(network: Network, batch: int) -> int:
    """Return how many mini-batches a synthetic ring holds: 2 to 8, within 512 MiB if possible."""
    return max(2, min(RING_BATCHES, RING_BYTES // batch_bytes(network, batch)))


def batch_bytes(network: Network, batch: int) -> int:
    """Return the bytes of one mini-batch, at four bytes a value."""
    return 4 * batch * (math.prod(network.input_shape) + math.prod(network.target_shape))


def save_weights(path: Path, weights: dict[str, np.ndarray]) -> None:
    """Write weights by full name as an uncompressed .npz: noise does not compress."""
    runners.arrays.save(path, weights)


def save_batches(path: Path, inputs: np.ndarray, targets: np.ndarray) -> None:
    """Write a ring as the keys `inputs` and `targets` of an uncompressed .npz."""
    runners.arrays.save(path, {"inputs": inputs, "targets": targets})


def mapped(path: Path) -> dict[str, np.ndarray]:
    """Map the arrays of an uncompressed .npz by name, read-only. Raises ValueError if compressed.
    """
    found: dict[str, np.ndarray] = runners.arrays.mapped(path)
    return found


def mapped_from(file: BinaryIO) -> dict[str, np.ndarray]:
    """Map the arrays of an open .npz, as `mapped` does. Reads no pickled objects."""
    found: dict[str, np.ndarray] = runners.arrays.mapped_from(file)
    return found


def _draw(rng: np.random.Generator, network: Network, layer: Layer, parameter: str,
          shape: tuple[int, ...]) -> np.ndarray:
    if parameter == "bias":
        return _uniform(rng, BIAS_RANGE, shape)
    if layer.op == "lstm":
        return _uniform(rng, 1 / math.sqrt(layer.attributes["units"]), shape)
    values = rng.standard_normal(shape, dtype=np.float32)
    if layer.op in ("batch_norm", "layer_norm", "rms_norm"):
        return np.float32(0.1) * values + np.float32(parameter == "scale")
    tied = any(other.attributes.get("tied") == layer.name for other in network.layers)
    if layer.op in ("positions", "class_token") or tied:
        return np.float32(TOKEN_SCALE) * values
    if layer.op == "embedding":
        return np.float32(EMBEDDING_SCALE) * values
    if layer.op in ("dense", "conv2d", "linear"):
        scale = math.sqrt(_gain_behind(network, layer) / math.prod(shape[1:]))
        # In place, because the largest tensor takes 0.5 GB.
        values *= np.float32(scale * _lrn_scale(network, layer))
        return values
    raise ValueError(f"{layer.name}: no rule to draw the weights of a {layer.op}; "
                     "add one to harness/data/arrays.py")


def _gain_behind(network: Network, layer: Layer) -> float:
    """Return the gain of the first operation in `GAINS` that the layer's output meets.

    Pooling with stride 1 does not count: it is one branch of an inception only.
    """
    met = {other.op for other in _behind(network, layer) if other.attributes.get("stride") != 1}
    branches = sum(other.op == "add" for other in network.layers)
    if "add" in met and met & {"layer_norm", "rms_norm"}:
        # GPT-2's: what the branches add together has variance one.
        return 1 / branches
    op = next(op for op in GAINS if op in met or not op)
    deep = sum(other.op in PRODUCTS for other in network.layers) >= DEEP
    return DEEP_RELU if op == "relu" and deep else GAINS[op]


def _lrn_scale(network: Network, layer: Layer) -> float:
    """Return `LRN_SCALE` where LRN follows the layer, its inverse where LRN precedes it."""
    behind = LRN_SCALE if any(other.op == "lrn" for other in _behind(network, layer)) else 1.0
    before = LRN_SCALE if any(other.op == "lrn" for other in _before(network, layer)) else 1.0
    return behind / before


def _behind(network: Network, layer: Layer) -> list[Layer]:
    """Return the operations between the layer's output and the next products."""
    reached, met = {layer.name}, []
    for follower in network.layers[network.layers.index(layer) + 1:]:
        if reached.intersection(follower.inputs) and follower.op not in PRODUCTS:
            reached.add(follower.name)
            met.append(follower)
    return met


def _before(network: Network, layer: Layer) -> list[Layer]:
    """Return the operations between the last products and the layer's input."""
    sources, met = set(layer.inputs), []
    for other in reversed(network.layers[:network.layers.index(layer)]):
        if other.name in sources and other.op not in PRODUCTS:
            sources.update(other.inputs)
            met.append(other)
    return met


def _pattern_batches(network: Network, batch: int, count: int, seed: int) -> Arrays:
    teacher = _stream(seed, "teacher")
    labels = teacher.permutation(network.classes)[:LABELS].astype(np.int32)
    patterns = _patterns(teacher, len(labels), network.input_shape)
    inputs = np.empty((count, batch, *network.input_shape), np.float32)
    targets = np.empty((count, batch), np.int32)

    def draw(number: int) -> None:
        rng = _stream(seed, f"batch {number}")
        rng.standard_normal(dtype=np.float32, out=inputs[number])
        drawn = rng.integers(len(labels), size=batch)
        targets[number] = labels[drawn]
        # Sample by sample, because a whole batch of patterns takes 154 MB.
        for sample, pattern in zip(inputs[number], drawn, strict=True):
            sample += patterns[pattern]

    # Each batch has its own stream, so its numbers are the same in any order.
    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, range(count)))
    return inputs, targets


def _patterns(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Draw patterns [count, *shape]: noise for features, coarse squares for images (C, H, W)."""
    if len(shape) != 3:
        return rng.standard_normal((count, *shape), dtype=np.float32)
    channels, height, width = shape
    coarse = rng.standard_normal((count, channels, PATTERN_SIDE, PATTERN_SIDE), dtype=np.float32)
    rows = np.arange(height) * PATTERN_SIDE // height
    columns = np.arange(width) * PATTERN_SIDE // width
    return coarse[:, :, rows[:, None], columns]


def _word_batches(network: Network, batch: int, count: int, seed: int) -> Arrays:
    """Draw texts in which each word has a few successors, by Zipf's law as in real text."""
    teacher = _stream(seed, "teacher")
    frequency = 1 / np.arange(1, network.vocabulary + 1)
    shares = frequency / frequency.sum()
    successors = teacher.choice(network.vocabulary, size=(network.vocabulary, SUCCESSORS), p=shares)
    (length,) = network.input_shape
    text = np.empty((count, batch, length + 1), np.int32)  # (N, B, T + 1)
    for number in range(count):
        rng = _stream(seed, f"batch {number}")
        turns = rng.integers(SUCCESSORS, size=(batch, length))
        text[number, :, 0] = rng.choice(network.vocabulary, size=batch, p=shares)
        for position in range(length):
            words = text[number, :, position]
            text[number, :, position + 1] = successors[words, turns[:, position]]
    return np.ascontiguousarray(text[:, :, :-1]), np.ascontiguousarray(text[:, :, 1:])


def _uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...]) -> np.ndarray:
    return np.float32(bound) * (2 * rng.random(shape, dtype=np.float32) - 1)


def _stream(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.Generator(np.random.PCG64([seed, int.from_bytes(digest[:8], "little")]))
