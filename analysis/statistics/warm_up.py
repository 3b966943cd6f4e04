"""Finds timed windows that are still warm-up: slower than the windows behind them, and so in all processes alike.

A process warms up before it is timed, but no fixed number of steps is right for every framework. What is found is left out of
the estimate and stated, for all processes of a trial alike; at most half of the windows go.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Times = NDArray[np.float64]

SIGNIFICANCE = 0.01  # of a one-sided t-test over processes: one trial in a hundred loses a window that was warm
SMALLEST = 0.01  # of a window's time: less is not worth a window
DRIFT = 0.02  # of the time, between the first and the second half of the windows: worth a remark


def leading(times: Sequence[Times]) -> int:
    """Count the windows that open every process and are still warm-up. `times` holds one array of windows a process."""
    table = _logarithms(times)
    most = int(table.shape[1]) // 2
    for window in range(most):
        if not _above(table[:, window] - np.median(table[:, window + 1:], axis=1), SMALLEST):
            return window
    return most


def drift(times: Sequence[Times]) -> float:
    """Return by what share the later half of the windows is slower, 0 where processes do not agree that it is or is not."""
    table = _logarithms(times)
    half = table.shape[1] // 2
    if not half:
        return 0.0
    change = np.median(table[:, -half:], axis=1) - np.median(table[:, :half], axis=1)
    return float(np.expm1(change.mean())) if _above(change, DRIFT) or _above(-change, DRIFT) else 0.0


def _logarithms(times: Sequence[Times]) -> Times:
    """The windows that all processes have, (process, window)."""
    shortest = min((len(windows) for windows in times), default=0)
    table: Times = np.log(np.array([windows[:shortest] for windows in times], float).reshape(len(times), shortest))
    return table


def _above(excess: Times, smallest: float) -> bool:
    """Say whether an excess is larger than `smallest` and too regular over processes to be chance."""
    if len(excess) < 3 or not excess.mean() > smallest:
        return False
    error = excess.std(ddof=1) / np.sqrt(len(excess))
    return bool(excess.mean() > error * stats.t.ppf(1 - SIGNIFICANCE, len(excess) - 1))
