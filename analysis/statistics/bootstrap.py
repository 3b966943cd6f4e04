"""Confidence intervals by a cluster bootstrap: over processes, then over windows within each.

Windows of one process are not independent (one memory layout, one moment of the machine), so
pooling them would halve the intervals. Input is one array of step times a process. Where several
nodes repeat a campaign, nodes are drawn instead (`by_node`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.statistics import calibration, ranks

Times = NDArray[np.float64]
Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

DRAWS = 4000
CONFIDENCE = calibration.CONFIDENCE
# The confidence of MLPerf's early stopping.
OF_LOADGEN = 0.99
# Two processes say nothing useful about how processes differ.
MINIMUM_PROCESSES = 3
SEED = 20161103


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval, which is nan with too few processes."""

    value: float
    low: float
    high: float
    processes: int

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def half_width(self) -> float:
        """Half the interval's width as a share of the value; infinite without an interval."""
        return (self.high - self.low) / (2 * self.value) if self.has_interval else math.inf

    def contains(self, number: float) -> bool:
        return self.has_interval and self.low <= number <= self.high

    def columns(self, name: str) -> dict[str, float]:
        """Return the value and the ends of its interval: `name`, `name`_low and `name`_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def exponential(self) -> "Estimate":
        """Return the estimate of x where this one is of log x."""
        return Estimate(math.exp(self.value), math.exp(self.low), math.exp(self.high),
                        self.processes)


NOT_MEASURED = Estimate(math.nan, math.nan, math.nan, 0)


class OfNodes(list[Times]):
    """An array a node that holds one number. Sides that ran on the same nodes are pairs."""

    def __init__(self, medians: Sequence[Times], names: Sequence[str]):
        super().__init__(medians)
        self.names = tuple(names)


def by_node(times: Sequence[Times], nodes: Sequence[str]) -> list[Times]:
    """Take the median of each node's processes; without `nodes` they stay as they are.

    Processes of one node share its faults, as windows share those of a process. The nodes' medians
    differ by the noise of their processes too, so drawing processes again would count it twice.
    """
    if not nodes:
        return list(times)
    names = list(dict.fromkeys(nodes))
    medians = [[np.median(windows) for windows, node in zip(times, nodes, strict=True)
                if node == name] for name in names]
    return OfNodes([np.array([np.median(each)]) for each in medians], names)


def estimate(times: Sequence[Times], seed: int = SEED) -> Estimate:
    """Estimate the median over processes of each process's median window, in the unit of `times`.

    Raises ValueError where a process has no window or a time is not positive.
    """
    value = _centre(times)
    if len(times) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(times))
    return _around(value, _draws(seed, times)[0], len(times))


def ratio(times: Sequence[Times], other: Sequence[Times], seed: int = SEED,
          confidence: float = CONFIDENCE, comparisons: int = 1) -> Estimate:
    """Estimate how many times as long `times` takes as `other`, resampled independently.

    The interval reaches to 1 if the processes overlap too much for one of several `comparisons`.
    On the same nodes it is the median of the nodes' own ratios: what slows both sides cancels.
    """
    if _on_same_nodes(times, other):
        return _on_nodes(lambda ours, theirs: np.log(ours / theirs), (times, other), seed,
                         confidence).exponential()
    value = _centre(times) / _centre(other)
    processes = min(len(times), len(other))
    if processes < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, processes)
    ours, theirs = _shares(seed, times, other)
    counts = len(times), len(other)
    low, high = (value * math.exp(end) for end in _apart(ours, theirs, counts, confidence))
    if not low <= 1 <= high and ranks.overlap(times, other, (1 - confidence) / comparisons):
        low, high = min(low, 1.0), max(high, 1.0)
    return Estimate(value, low, high, processes)


def quantile(times: Sequence[Times], share: float) -> Estimate:
    """Estimate the median over processes of each process's quantile of its calls.

    The quantile of a process is the k-th smallest of its n calls, k = ceil(share n). The interval
    draws processes, and for each the k-th smallest of n resampled calls, as in the binomial
    interval of an order statistic. Calls of a process count as independent of one another.
    """
    ordered = [np.sort(calls) for calls in times]
    sizes = np.array([len(calls) for calls in ordered])
    kth = np.maximum(1, np.ceil(share * sizes).astype(np.int64))
    value = float(np.median([calls[k - 1] for calls, k in zip(ordered, kth, strict=True)]))
    if len(times) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(times))
    generator = np.random.default_rng(SEED)
    picked = generator.integers(len(sizes), size=(DRAWS, len(sizes)))
    size, k = sizes[picked], kth[picked]
    # As in `_places`: one number stands for all resampled calls.
    places = _index(generator.beta(k, size - k + 1), size)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    draws = np.median(np.concatenate(ordered)[starts[picked] + places], axis=1)
    return _around(value, draws, len(times))


def least_calls(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the fewest calls whose largest lies beyond the quantile with `confidence`.

    It is the early-stopping rule of MLPerf's LoadGen without a discarded call: 1 - share^n.
    """
    return math.ceil(math.log(1 - confidence) / math.log(share))


def stops_early(late: int, calls: int, share: float) -> bool:
    """Return whether so few late calls show that the share is kept, by LoadGen's early stopping.

    If the share were just kept, so few would be late in less than one run of a hundred. The calls
    count as independent. Source: early_stopping.cc of mlcommons/inference.
    """
    # Loaded here, because every start of the command would wait for it.
    from scipy import special

    return bool(special.bdtr(late, calls, 1 - share) < 1 - OF_LOADGEN)


def step(pair: tuple[Sequence[Times], Sequence[Times]],
         before: tuple[Sequence[Times], Sequence[Times]], seed: int = SEED,
         confidence: float = CONFIDENCE) -> Estimate:
    """Estimate how many times as large one ratio is as another, resampled independently.

    Each pair holds the times and those of the base that ran beside them, so that a change of the
    machine between two campaigns cancels.
    """
    if _on_same_nodes(*pair, *before):
        return _on_nodes(lambda new, base, old, base_before: np.log(new * base_before / base / old),
                         (*pair, *before), seed, confidence).exponential()
    value = math.prod(_centre(each) ** sign for each, sign in
                      zip((*pair, *before), (1, -1, -1, 1), strict=True))
    counts = min(map(len, pair)), min(map(len, before))
    if min(counts) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, min(counts))
    times, base, times_before, base_before = _shares(seed, *pair, *before)
    ours, theirs = times - base, times_before - base_before
    low, high = map(math.exp, _apart(ours, theirs, counts, confidence))
    return Estimate(value, value * low, value * high, min(counts))


def difference(times: Sequence[Times], other: Sequence[Times], seed: int = SEED) -> Estimate:
    """Estimate how much longer `times` takes than `other`, resampled independently."""
    if _on_same_nodes(times, other):
        return _on_nodes(np.subtract, (times, other), seed, CONFIDENCE)
    ours, theirs = _centre(times), _centre(other)
    processes = min(len(times), len(other))
    if processes < MINIMUM_PROCESSES:
        return Estimate(ours - theirs, math.nan, math.nan, processes)
    draws, other_draws = _draws(seed, times, other)
    counts = len(times), len(other)
    low, high = _apart(draws - ours, other_draws - theirs, counts, CONFIDENCE)
    return Estimate(ours - theirs, ours - theirs + low, ours - theirs + high, processes)


def paired(differences: Sequence[Times], seed: int = SEED,
           confidence: float = CONFIDENCE) -> Estimate:
    """Estimate a difference that each process measured side by side, window by window.

    A slow process is slow on both sides, so this interval is narrower than that of `difference`,
    whose sides are independent. The difference may be negative.
    """
    value = float(np.median([np.median(windows) for windows in differences]))
    if len(differences) < MINIMUM_PROCESSES:
        return Estimate(value, math.nan, math.nan, len(differences))
    errors = _draws(seed, differences)[0] - value
    low, high = _ends(errors, calibration.one_side(len(differences), confidence), confidence)
    return Estimate(value, value + low, value + high, len(differences))


def _around(value: float, draws: Times, processes: int) -> Estimate:
    """Return the estimate of a positive value of one side from draws of it."""
    widening = calibration.one_side(processes, CONFIDENCE)
    low, high = map(math.exp, _ends(np.log(draws / value), widening, CONFIDENCE))
    return Estimate(value, value * low, value * high, processes)


def _on_same_nodes(*sides: Sequence[Times]) -> bool:
    names = {side.names if isinstance(side, OfNodes) else () for side in sides}
    return len(names) == 1 and () not in names


def _on_nodes(combine: Callable[..., Times], sides: Sequence[Sequence[Times]], seed: int,
              confidence: float) -> Estimate:
    """Estimate the median over nodes of what `combine` makes of the sides on each node."""
    for side in sides:
        _centre(side)
    own = combine(*(np.concatenate(side) for side in sides))
    return paired([np.array([each]) for each in own], seed, confidence)


def _centre(times: Sequence[Times]) -> float:
    if not times or any(len(windows) == 0 for windows in times):
        raise ValueError("an estimate needs one process or more, each with a timed window")
    ordered = [np.sort(windows) for windows in times]
    # The last one is nan if any is.
    if not all(windows[0] > 0 and windows[-1] > 0 for windows in ordered):
        raise ValueError("a window's time is not positive: its clock was not monotonic")
    return _middle(np.sort([_middle(windows) for windows in ordered]))


def _middle(ordered: Times) -> float:
    """Return what np.median does of sorted numbers, in a tenth of its time."""
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _shares(seed: int, *sides: Sequence[Times]) -> list[Times]:
    """Draw logarithms of shares of the centre: times are positive and slow-downs are factors."""
    return [np.log(draws / _centre(times))
            for draws, times in zip(_draws(seed, *sides), sides, strict=True)]


def _apart(errors: Times, others: Times, counts: tuple[int, int],
           confidence: float) -> tuple[float, float]:
    """Return the percentiles of draws of a difference; `counts` are both sides' processes."""
    share = float(calibration.share(errors.var(), others.var()))
    widening = calibration.two_sides(*counts, share, confidence)
    return _ends(errors - others, widening, confidence)


def _ends(errors: Times, widening: float, confidence: float) -> tuple[float, float]:
    """Return the percentiles of draws around 0, pushed outwards by `widening`."""
    low, high = np.quantile(errors, [(1 - confidence) / 2, (1 + confidence) / 2])
    return widening * min(float(low), 0.0), widening * max(float(high), 0.0)


def _draws(seed: int, *sides: Sequence[Times]) -> list[Times]:
    """Draw medians of resampled processes' medians of resampled windows, (DRAWS,) of each side."""
    sizes = tuple(tuple(len(windows) for windows in times) for times in sides)
    return [_medians(times, places)
            for times, places in zip(sides, _places_of(sizes, seed, DRAWS), strict=True)]


def _medians(times: Sequence[Times], places: Places) -> Times:
    # (process, window), each row sorted, the rest unused.
    table = np.full((len(times), max(map(len, times))), np.nan)
    for row, windows in zip(table, times, strict=True):
        row[: len(windows)] = np.sort(windows)
    picked, lower, upper = places
    medians: Times = np.median((table[picked, lower] + table[picked, upper]) / 2, axis=1)
    return medians


@lru_cache(maxsize=32)
def _places_of(sizes: tuple[tuple[int, ...], ...], seed: int, draws: int) -> list[Places]:
    """Draw the places of each side; cached, because a report repeats the same sizes often."""
    generator = np.random.default_rng(seed)
    return [_places(each, generator, draws) for each in sizes]


def _places(counts: tuple[int, ...], generator: np.random.Generator, draws: int) -> Places:
    """Draw processes, and the two windows of each around its median: three (draws, processes).

    The k-th smallest of W uniform numbers has the distribution Beta(k, W + 1 - k). So one number
    picks the k-th smallest of W resampled windows: exact, and W times less work.
    """
    sizes = np.array(counts)
    picked = generator.integers(len(sizes), size=(draws, len(sizes)))
    size = sizes[picked]
    middle = (size + 1) // 2
    lower = generator.beta(middle, size - middle + 1)
    # The next order statistic, given the lower one.
    upper = lower + (1 - lower) * generator.beta(1, np.maximum(size - middle, 1))
    upper = np.where(size % 2 == 1, lower, upper)
    return picked, _index(lower, size), _index(upper, size)


def _index(uniform: Times, size: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum((uniform * size).astype(np.int64), size - 1)
