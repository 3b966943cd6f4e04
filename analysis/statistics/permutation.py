"""Tests whether treatments differ when each was tried once on the same blocks, as on equal seeds.

If treatments are alike, their values of one block could as well have come in another order. The
distribution of a statistic over all these orders is exact where they are few: no normality is
assumed, and equal values count as such. `smaller` has no blocks: it compares other seeds.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
# More treatments have too many orders: 5 have 120 in each block. Then orders are drawn.
MOST_EXACT = 5
DRAWS = 20_000
SEED = 1


@dataclass(frozen=True)
class Result:
    """`p` is the probability of so large a difference by chance, `least` the smallest possible."""

    p: float
    least: float


def alike(values: np.ndarray) -> Result:
    """Test that the columns of whole numbers (blocks, treatments) have equal sums.

    The statistic is the sum of the squares of the columns' sums. `least` is what values without
    ties could show.
    """
    blocks, treatments = values.shape
    observed = int(np.square(values.sum(axis=0)).sum())
    if treatments > MOST_EXACT:
        return Result(*_drawn(values, observed))
    sums: Counter[tuple[int, ...]] = Counter({(0,) * treatments: 1})
    for row in values.tolist():
        orders = Counter(itertools.permutations(row))
        following: Counter[tuple[int, ...]] = Counter()
        for (before, count), (order, times) in itertools.product(sums.items(), orders.items()):
            added = tuple(map(sum, zip(before, order, strict=True)))
            following[added] += count * times
        sums = following
    of_all = math.factorial(treatments) ** blocks
    larger = sum(count for each, count in sums.items()
                 if sum(value * value for value in each) >= observed)
    # The largest difference: all blocks in one order, whichever that is.
    return Result(larger / of_all, 1 / math.factorial(treatments) ** (blocks - 1))


def fewer(values: np.ndarray, others: np.ndarray) -> float:
    """Return the probability of so small a sum of `values` if each pair may be swapped."""
    apart = (values - others).tolist()
    sums: Counter[int] = Counter({0: 1})
    for each in apart:
        following: Counter[int] = Counter()
        for before, count in sums.items():
            following[before + each] += count
            following[before - each] += count
        sums = following
    as_small = sum(count for total, count in sums.items() if total <= sum(apart))
    return float(as_small / 2 ** len(apart))


def smaller(values: np.ndarray, others: np.ndarray) -> float:
    """Return the probability of so small a sum of `values` if they and `others` were one sample.

    The orders are drawn.
    """
    generator, pool = np.random.default_rng(SEED), np.concatenate([values, others])
    as_small = sum(int(generator.permutation(pool)[:len(values)].sum() <= values.sum())
                   for _ in range(DRAWS))
    return (as_small + 1) / (DRAWS + 1)


def _drawn(values: np.ndarray, observed: int) -> tuple[float, float]:
    generator = np.random.default_rng(SEED)
    larger = 0
    for _ in range(DRAWS):
        drawn = generator.permuted(values, axis=1).sum(axis=0)
        larger += int(np.square(drawn).sum()) >= observed
    return (larger + 1) / (DRAWS + 1), 1 / (DRAWS + 1)
