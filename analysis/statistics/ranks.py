"""Tests by ranks whether processes of two sides differ, whatever the shape of their distribution.

A bootstrap of few processes assumes a normal distribution. Where processes have a fast and a slow
mode, the medians of equal sides may fall into different modes by chance. The exact test of Mann and
Whitney (1947) counts the pairs in which the slower side's process is the faster.
"""

from collections.abc import Sequence

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
    # Loaded here, because every start of the command would wait for it.
    from scipy import stats

    ours, theirs = ([np.median(windows) for windows in side] for side in (times, others))
    found = stats.mannwhitneyu(ours, theirs, method="exact")
    apart = found.statistic in (0, len(ours) * len(theirs))
    # The probability of what has exactly `alpha` may be rounded up.
    return bool(not apart and found.pvalue > alpha * (1 + 1e-9))
