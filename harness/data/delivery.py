"""Compares the mini-batches that a framework's loader delivered with the driver's own decode.

The driver knows which sample belongs at each place of the order. So these faults show: a label
beside another image, a sample that comes twice or never, swapped channels, a dropped last batch.
The reason names the first fault that explains what came.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from harness.data.image_files import WHITE, ImageFiles

# Samples that are searched for among all, where another should stand.
SOUGHT = 8
# Mean difference of a JPEG's pixels, in levels.
MEAN_LIMIT = 0.5

Batches = Iterable[tuple[np.ndarray, np.ndarray]]


class Delivered(NamedTuple):
    """The largest difference of a pixel in levels of 255, and what is wrong, or ""."""

    error: float
    fault: str


def compare(batches: Batches, files: ImageFiles, first: int, batch: int) -> Delivered:
    """Compare batches (B, C, H, W) and labels (B) with the samples from place `first` on."""
    error, place = 0.0, first
    for number, (inputs, labels) in enumerate(batches):
        wanted = files.numbers(place, batch)
        shape = (batch, *files.images.shape[1:])
        if inputs.dtype.kind not in "fiu" or labels.dtype.kind not in "fiu":
            return Delivered(np.inf, f"batch {number} is of {inputs.dtype} and its labels of "
                                     f"{labels.dtype}, not of numbers")
        if inputs.shape != shape or labels.shape != (batch,):
            return Delivered(np.inf, f"batch {number} has shape {inputs.shape} and "
                                     f"{labels.shape} labels, not {shape} and ({batch},)")
        levels = files.levels(inputs)
        apart = np.abs(levels - files.images[wanted])
        worst = np.nan_to_num(apart.reshape(batch, -1).max(axis=1), nan=np.inf)
        error = max(error, float(worst.max()))
        wrong = worst > files.limit
        if wrong.any() or apart.mean() > min(files.limit, MEAN_LIMIT):
            return Delivered(error, _of_pixels(levels, worst, wanted, files, place))
        if (labels != files.labels[wanted]).any():
            count = int((labels != files.labels[wanted]).sum())
            return Delivered(error, f"{count} of {batch} labels from sample {place} of the order "
                                    "on are not those of their images")
        place += batch
    return Delivered(error, "")


def _of_pixels(levels: np.ndarray, worst: np.ndarray, wanted: np.ndarray, files: ImageFiles,
               place: int) -> str:
    """Say why pixels are not those of the samples that should stand there."""
    rows = np.flatnonzero(worst > files.limit)
    if not len(rows):
        return (f"pixels differ by more than {min(files.limit, MEAN_LIMIT):g} of {WHITE} levels "
                "in the mean")
    turned = np.abs(levels[rows, ::-1] - files.images[wanted[rows]])
    if turned.max() <= files.limit:
        return "the channels of images are swapped: blue for red"
    found = {int(row): sample for row in rows[:SOUGHT]
             if (sample := _found(levels[row], files)) is not None}
    if not found:
        return (f"pixels are off by up to {worst.max():.3g} of {WHITE} levels, "
                f"{files.limit:g} is allowed: another decoding or normalisation")
    row, sample = next(iter(found.items()))
    where, count = place + row, len(files.images)
    skipped = _skipped(found, files, place)
    epoch = where // count
    if skipped and (where + skipped) % count == 0:
        return (f"samples were not delivered: the last {skipped} of epoch {epoch + 1}, a batch "
                "that is not full")
    if skipped:
        return f"samples were not delivered: {skipped} from place {where} of the order on"
    if sample in files.numbers(epoch * count, where - epoch * count):
        return (f"sample {sample} was delivered twice in epoch {epoch + 1}, at place {where} "
                f"instead of sample {wanted[row]}")
    return f"sample {sample} stands at place {where} of the order instead of {wanted[row]}"


def _found(image: np.ndarray, files: ImageFiles) -> int | None:
    """Return the number of the sample that an image shows, or None."""
    near = np.abs(files.images - image).reshape(len(files.images), -1).max(axis=1)
    return int(near.argmin()) if near.min() <= files.limit else None


def _skipped(found: Mapping[int, int], files: ImageFiles, place: int) -> int:
    """Return how many samples are missing before those of `found`; 0 if that is not it."""
    count = len(files.images)
    shifts = set()
    for row, sample in found.items():
        later = np.flatnonzero(files.numbers(place + row, 2 * count) == sample)
        shifts.add(int(later[0]))
    return shifts.pop() if len(shifts) == 1 and len(found) > 1 else 0
