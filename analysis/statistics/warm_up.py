"""Finds timed windows that are still warm-up: slower than the later ones in all processes alike.

No fixed number of warm-up steps is right for every framework. These windows are left out of the
estimate and stated, for all processes of a trial; at most half of the windows go.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

# Of a one-sided t-test over processes: one trial in a hundred loses a warm window.
SIGNIFICANCE = 0.01
# Share of a window's time: less is not worth a window.
SMALLEST = 0.01
# Share of the time between the halves of the windows that is worth a remark.
DRIFT = 0.02


def leading(times: Sequence[Times]) -> int:
    """Count the first windows of every process that are still warm-up."""
    table = _logarithms(times)
    most = int(table.shape[1]) // 2
    for window in range(most):
        if not _above(table[:, window] - np.median(table[:, window + 1:], axis=1), SMALLEST):
            return window
    return most


def drift(times: Sequence[Times]) -> float:
    """Return by what share the later half of the windows is slower; 0 if processes disagree."""
    table = _logarithms(times)
    half = table.shape[1] // 2
    if not half:
        return 0.0
    change = np.median(table[:, -half:], axis=1) - np.median(table[:, :half], axis=1)
    drifts = _above(change, DRIFT) or _above(-change, DRIFT)
    return float(np.expm1(change.mean())) if drifts else 0.0


def _logarithms(times: Sequence[Times]) -> Times:
    """Return the logarithms of the windows that all processes have, (process, window)."""
    shortest = min((len(windows) for windows in times), default=0)
    table = np.array([windows[:shortest] for windows in times], float)
    return np.asarray(np.log(table.reshape(len(times), shortest)))


def _above(excess: Times, smallest: float) -> bool:
    """Return whether an excess is above `smallest` and too regular over processes for chance."""
    if len(excess) < 3 or not excess.mean() > smallest:
        return False
    error = excess.std(ddof=1) / np.sqrt(len(excess))
    # Loaded here, because every start of the command would wait for it.
    from scipy import special

    return bool(excess.mean() > error * special.stdtrit(len(excess) - 1, 1 - SIGNIFICANCE))
