"""Time per mini-batch with an honest interval: a cluster bootstrap over processes first, then over the windows within each.

Windows of one process are not independent (one memory layout, one moment of the machine), so pooling them gives intervals less
than half as wide as is honest. Everything here works on plain arrays, one array of step times a process. It reads no records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.statistics import calibration

Times = NDArray[np.float64]
Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

DRAWS = 4000
CONFIDENCE = 0.95
MINIMUM_PROCESSES = 3  # two processes say nothing useful about how processes differ
SEED = 20161103


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; `low` and `high` are nan where there were too few processes for one."""

    value: float
    low: float
    high: float
    processes: int

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def half_width(self) -> float:
        """Half the interval's width as a share of the value; infinite where there is no interval."""
        return (self.high - self.low) / (2 * self.value) if self.has_interval else math.inf

    def contains(self, number: float) -> bool:
        return self.has_interval and self.low <= number <= self.high


def estimate(times: Sequence[Times], seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the median over processes of each process's median window, in the unit of `times` (seconds a step).

    `times` holds one array of windows a process. Raises ValueError where a process has none or a time is not positive.
    """
    value = _centre(times)
    if len(times) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(times))
    draws = _medians(times, _first_places(tuple(len(windows) for windows in times), seed, DRAWS))
    low, high = _ends(np.log(draws / value), calibration.one_side(len(times), confidence), confidence)
    return Estimate(value, value * low, value * high, len(times))


def ratio(times: Sequence[Times], other: Sequence[Times], seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate how many times as long `times` takes as `other`, both resampled independently of each other."""
    value = _centre(times) / _centre(other)
    processes = min(len(times), len(other))
    if processes < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, processes)
    generator = np.random.default_rng(seed)
    ours, theirs = _shares(times, generator), _shares(other, generator)
    share = calibration.share(ours.var(), theirs.var())
    low, high = _ends(ours - theirs, calibration.two_sides(len(times), len(other), float(share), confidence), confidence)
    return Estimate(value, value * low, value * high, processes)


def difference(times: Sequence[Times], other: Sequence[Times], seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate how much longer `times` takes than `other`, in their unit, both resampled independently of each other."""
    ours, theirs = _centre(times), _centre(other)
    processes = min(len(times), len(other))
    if processes < MINIMUM_PROCESSES:
        return Estimate(ours - theirs, math.nan, math.nan, processes)
    generator = np.random.default_rng(seed)
    errors, others = _draws(times, generator) - ours, _draws(other, generator) - theirs
    share = calibration.share(errors.var(), others.var())
    widening = calibration.two_sides(len(times), len(other), float(share), confidence)
    low, high = np.quantile(errors - others, [(1 - confidence) / 2, (1 + confidence) / 2])
    value = ours - theirs
    return Estimate(value, value + widening * min(low, 0.0), value + widening * max(high, 0.0), processes)


def paired(differences: Sequence[Times], seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate a difference of two times that each process measured side by side, window by window; it may be negative.

    `differences` holds one array of windows a process. What makes one process slow makes both its times slow, so this interval is
    narrower than that of `difference`, which takes its sides for independent.
    """
    value = float(np.median([np.median(windows) for windows in differences]))
    if len(differences) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(differences))
    errors = _draws(differences, np.random.default_rng(seed)) - value
    widening = calibration.one_side(len(differences), confidence)
    low, high = np.quantile(errors, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, value + widening * min(low, 0.0), value + widening * max(high, 0.0), len(differences))


def _centre(times: Sequence[Times]) -> float:
    if not times or any(len(windows) == 0 for windows in times):
        raise ValueError("an estimate needs at least one process, and at least one timed window of each")
    if any(not np.all(np.asarray(windows) > 0) for windows in times):
        raise ValueError("a window's time is not positive: its clock was not monotonic")
    return float(np.median([np.median(windows) for windows in times]))


def _shares(times: Sequence[Times], generator: np.random.Generator) -> Times:
    """Bootstrap draws as logarithms of their share of the centre, because times are positive and slow-downs are factors."""
    return np.log(_draws(times, generator) / _centre(times))


def _ends(shares: Times, widening: float, confidence: float) -> tuple[float, float]:
    """The percentiles of draws, pushed from the centre by `widening`, as factors of the centre."""
    low, high = np.quantile(shares, [(1 - confidence) / 2, (1 + confidence) / 2])
    return math.exp(widening * min(low, 0.0)), math.exp(widening * max(high, 0.0))


def _draws(times: Sequence[Times], generator: np.random.Generator) -> Times:
    """Medians of resampled processes' medians of resampled windows, (DRAWS,)."""
    return _medians(times, _places(tuple(len(windows) for windows in times), generator, DRAWS))


def _medians(times: Sequence[Times], places: Places) -> Times:
    table = np.full((len(times), max(map(len, times))), np.nan)  # (process, window), each row sorted, the rest unused
    for row, windows in zip(table, times, strict=True):
        row[: len(windows)] = np.sort(windows)
    picked, lower, upper = places
    medians: Times = np.median((table[picked, lower] + table[picked, upper]) / 2, axis=1)
    return medians


@lru_cache(maxsize=32)
def _first_places(sizes: tuple[int, ...], seed: int, draws: int) -> Places:
    """The places of a fresh generator: a study has thousands of estimates with as many processes and windows each."""
    return _places(sizes, np.random.default_rng(seed), draws)


def _places(counts: tuple[int, ...], generator: np.random.Generator, draws: int) -> Places:
    """Draw processes, and of each the two windows, by their order, between which its median lies: three arrays (draws, processes).

    The windows need not be drawn one by one: the k-th smallest of W uniform numbers has the distribution Beta(k, W + 1 - k),
    so one such number picks the k-th smallest of W resampled windows. Exact, and W times less work.
    """
    sizes = np.array(counts)
    picked = generator.integers(len(sizes), size=(draws, len(sizes)))
    size = sizes[picked]
    middle = (size + 1) // 2
    lower = generator.beta(middle, size - middle + 1)
    upper = lower + (1 - lower) * generator.beta(1, np.maximum(size - middle, 1))  # the next order statistic, given the lower
    upper = np.where(size % 2 == 1, lower, upper)
    return picked, _index(lower, size), _index(upper, size)


def _index(uniform: Times, size: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum((uniform * size).astype(np.int64), size - 1)
