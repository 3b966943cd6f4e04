"""Time per mini-batch with an honest interval: a cluster bootstrap over processes first, then over the windows within each.

Windows of one process are not independent (one memory layout, one moment of the machine), so pooling them gives intervals less
than half as wide as is honest. Everything here works on plain arrays, one array of step times a process. It reads no records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Times = NDArray[np.float64]

DRAWS = 4000
CONFIDENCE = 0.95
MINIMUM_PROCESSES = 3  # two processes say nothing useful about how processes differ
SEED = 20161103


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; `low` and `high` are nan where there were too few processes for one."""

    value: float
    low: float
    high: float
    processes: int

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def contains(self, number: float) -> bool:
        return self.has_interval and self.low <= number <= self.high


def estimate(times: Sequence[Times], seed: int = SEED) -> Estimate:
    """Estimate the median over processes of each process's median window, in the unit of `times` (seconds a step).

    `times` holds one array of windows a process. Raises ValueError where a process has none or a time is not positive.
    """
    value = _centre(times)
    if len(times) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(times))
    low, high = _percentiles(_widened_draws(times, np.random.default_rng(seed)))
    return Estimate(value, low, high, len(times))


def ratio(times: Sequence[Times], other: Sequence[Times], seed: int = SEED) -> Estimate:
    """Estimate how many times as long `times` takes as `other`, both resampled independently of each other."""
    value = _centre(times) / _centre(other)
    processes = min(len(times), len(other))
    if processes < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, processes)
    generator = np.random.default_rng(seed)
    low, high = _percentiles(_widened_draws(times, generator) / _widened_draws(other, generator))
    return Estimate(value, low, high, processes)


def widening(processes: int) -> float:
    """How far bootstrap draws are pushed from the estimate, so that few processes still give 95 %.

    The bootstrap's variance is (n - 1)/n of the wanted one (Davison and Hinkley 1997, section 2.6) and its percentiles are the
    normal's, not Student's with n - 1 degrees of freedom: sqrt(n / (n - 1)) t(n - 1) / z. Where
    processes spread ten times as much as their windows the plain percentile interval covered 77, 87, 94, 94, 89 and 93 % with
    3, 4, 5, 6, 7 and 10 processes; with it 93, 95, 98, 97, 94 and 97 % (normal effects; Student-3, exponential and two-humped
    ones 92.5 to 98.5 %; 1500 trials each). A trial against itself was then called different in 0.6 to 1.5 %.
    """
    tail = (1 + CONFIDENCE) / 2
    return math.sqrt(processes / (processes - 1)) * float(stats.t.ppf(tail, processes - 1) / stats.norm.ppf(tail))


def _centre(times: Sequence[Times]) -> float:
    if not times or any(len(windows) == 0 for windows in times):
        raise ValueError("an estimate needs at least one process, and at least one timed window of each")
    if any(not np.all(np.asarray(windows) > 0) for windows in times):
        raise ValueError("a window's time is not positive: its clock was not monotonic")
    return float(np.median([np.median(windows) for windows in times]))


def _widened_draws(times: Sequence[Times], generator: np.random.Generator) -> Times:
    """Bootstrap draws of the centre, pushed from it by `widening`; by ratio, because times are positive."""
    centre = _centre(times)
    return centre * (_draws(times, generator) / centre) ** widening(len(times))


def _draws(times: Sequence[Times], generator: np.random.Generator) -> Times:
    """Medians of resampled processes' medians of resampled windows, (DRAWS,).

    The windows need not be drawn one by one: the k-th smallest of W uniform numbers has the distribution Beta(k, W + 1 - k),
    so one such number picks the k-th smallest of W resampled windows. Exact, and W times less work.
    """
    sizes = np.array([len(windows) for windows in times])
    table = np.full((len(times), sizes.max()), np.nan)  # (process, window), each row sorted, the rest unused
    for row, windows in zip(table, times, strict=True):
        row[: len(windows)] = np.sort(windows)
    picked = generator.integers(len(times), size=(DRAWS, len(times)))
    size = sizes[picked]
    middle = (size + 1) // 2
    lower = generator.beta(middle, size - middle + 1)
    upper = lower + (1 - lower) * generator.beta(1, np.maximum(size - middle, 1))  # the next order statistic, given the lower
    upper = np.where(size % 2 == 1, lower, upper)
    medians = (table[picked, _index(lower, size)] + table[picked, _index(upper, size)]) / 2
    return np.median(medians, axis=1)


def _index(uniform: Times, size: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum((uniform * size).astype(np.int64), size - 1)


def _percentiles(draws: Times) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
