"""Shares of right answers: the interval of the difference of two on the same samples.

R. G. Newcombe, "Improved confidence intervals for the difference between binomial proportions based
on paired data", Statistics in Medicine 17 (1998) 2635-2650, method 10.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.calibration import CONFIDENCE

Right = NDArray[np.bool_]
# A share with the ends of its interval.
Bounds = tuple[float, float, float]


def wilson(right: int, count: int, confidence: float = CONFIDENCE) -> Bounds:
    """Return a share with the ends of its score interval (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = right / count
    middle = (right + z * z / 2) / (count + z * z)
    half = z * math.sqrt(right * (count - right) / count + z * z / 4) / (count + z * z)
    return share, max(0.0, middle - half), min(1.0, middle + half)


def paired_difference(one: Right, other: Right, confidence: float = CONFIDENCE) -> Bounds:
    """Return the share of `one` less that of `other`, and the ends of its interval.

    Both say which of the same samples are right, in one order. Raises ValueError without a sample.
    """
    if not len(one) or len(one) != len(other):
        raise ValueError(f"came {len(one)} and {len(other)} answers, expected pairs")
    both, neither = int((one & other).sum()), int((~one & ~other).sum())
    only, lost = int((one & ~other).sum()), int((~one & other).sum())
    return of_counts(both, only, lost, neither, confidence)


def of_counts(both: int, only: int, lost: int, neither: int,
              confidence: float = CONFIDENCE) -> Bounds:
    """Return what `paired_difference` does, from the counts of the four kinds of pairs.

    In Newcombe's letters they are e, f, g and h: both right, the first alone, the second alone.
    """
    count = both + only + lost + neither
    first, first_low, first_high = wilson(both + only, count, confidence)
    second, second_low, second_high = wilson(both + lost, count, confidence)
    correlation = _correlation(both, only, lost, neither)

    def together(below: float, above: float) -> float:
        # Rounding may make a difference of squares a little negative.
        return math.sqrt(max(0.0, below**2 - 2 * correlation * below * above + above**2))

    difference = (only - lost) / count
    return (difference, difference - together(first - first_low, second_high - second),
            difference + together(first_high - first, second - second_low))


def _correlation(both: int, only: int, lost: int, neither: int) -> float:
    """Return phi with Newcombe's correction for continuity; 0 where a margin is empty."""
    margins = math.prod((both + only, lost + neither, both + lost, only + neither))
    if not margins:
        return 0.0
    cross = float(both * neither - only * lost)
    if cross > 0:
        cross = max(0.0, cross - (both + only + lost + neither) / 2)
    return cross / math.sqrt(margins)
