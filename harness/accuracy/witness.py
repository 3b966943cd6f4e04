"""Holds two successive steps of a training run against the float64 gradient of the second.

With momentum m and the rate lr, weights w0, w1, w2 before, between and after the two steps show
the gradient at w1: lr g = (w1 - w2) - m (w0 - w1). So no optimiser state is read. A tensor
whose step is mostly rounding of its stored float32 weights is not seen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Of a gradient's norm: above what rounding may do in a tensor that is seen, and below faults that
# matter, such as a learning rate that is off by this share.
LIMIT = 0.04
MOST_ROUNDING = 0.02
UNIT_ROUNDOFF = 2.0**-24

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """How a step is to be made."""

    rate: float
    momentum: float


@dataclass(frozen=True)
class Seen:
    """The largest error of a tensor's gradient, its name, and the share of parameters seen.

    An error is the distance from the right gradient over that gradient's norm.
    """

    error: float
    tensor: str
    share: float

    @property
    def fault(self) -> str:
        """Say what is wrong; "" if nothing is. Written so that nan is wrong."""
        if not self.share or self.error <= LIMIT:
            return ""
        return (f"the steps of this epoch are not those of the network: the gradient of "
                f"{self.tensor} is off by {self.error:.2g} of its norm, {LIMIT:g} allowed")


def look(before: Weights, between: Weights, after: Weights, gradients: Weights,
         recipe: Recipe) -> Seen:
    """Compare the gradient of each tensor that can be seen."""
    worst, tensor, seen, total = 0.0, "", 0, 0
    for name, right in gradients.items():
        w0, w1, w2 = (each[name].astype(np.float64) for each in (before, between, after))
        error, rounding = _error((w0, w1, w2), right, recipe)
        total += right.size
        if rounding <= MOST_ROUNDING:
            seen += right.size
            if not error <= worst:
                worst, tensor = error, name
    return Seen(worst, tensor, seen / total)


def _error(weights: tuple[np.ndarray, np.ndarray, np.ndarray], right: np.ndarray,
           recipe: Recipe) -> tuple[float, float]:
    """Return a gradient's error, and what rounding of the stored weights may add to it."""
    w0, w1, w2 = weights
    size = float(np.linalg.norm(right))
    if not size:
        return 0.0, math.inf
    found = ((w1 - w2) - recipe.momentum * (w0 - w1)) / recipe.rate
    # Each stored weight is off by at most half a unit in its last place, in each of three terms.
    largest = float(np.linalg.norm(w1)) * UNIT_ROUNDOFF
    rounding = largest * (2 + 2 * recipe.momentum) / recipe.rate / size
    distance = float(np.linalg.norm(found - right)) / size
    # Weights that are no numbers are seen.
    return (distance, rounding) if math.isfinite(distance) else (math.inf, 0.0)
