"""Tests by ranks whether processes of two sides differ, whatever the shape of their distribution.

A bootstrap of few processes trusts that they spread like a bell. Where processes have a fast and a
slow mode, one side's median falls into the one by chance and the other's into the other. The exact
test of Mann and Whitney (1947) counts the pairs in which the slower side's process is the faster.
"""

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np
from numpy.typing import NDArray

# More processes take longer to count, and show both modes anyhow.
MOST = 50


def overlap(times: Sequence[NDArray[np.float64]], others: Sequence[NDArray[np.float64]],
            alpha: float) -> bool:
    """Return whether the processes' medians of two sides overlap too much to differ at `alpha`.

    Where too few processes could show that, only sides that do not overlap at all differ.
    """
    if max(len(times), len(others)) > MOST:
        return False
    ours, theirs = (np.array([np.median(windows) for windows in side]) for side in (times, others))
    above = np.sign(ours[:, None] - theirs[None, :])
    # An equal pair counts half for each side.
    fewer = (above.size - abs(above.sum())) / 2
    return bool(fewer > _most(len(ours), len(theirs), alpha))


@cache
def _most(count: int, others: int, alpha: float) -> int:
    """Return the most pairs in the other order that equal sides have with at most `alpha`."""
    # ways[u]: orders of all processes with u such pairs, by the product of (1 - x^(others + i)) /
    # (1 - x^i) over i.
    ways = [1] + [0] * (count * others)
    for i in range(1, count + 1):
        for u in range(len(ways) - 1, others + i - 1, -1):
            ways[u] -= ways[u - others - i]
        for u in range(i, len(ways)):
            ways[u] += ways[u - i]
    most, so_far = 0, 0
    for u, each in enumerate(ways):
        so_far += each
        if 2 * so_far > alpha * comb(count + others, count):
            break
        most = u
    return most
