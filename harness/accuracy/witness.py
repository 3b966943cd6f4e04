"""Compares two successive steps of a training run with the gradient of the second.

With momentum m and rate lr, weights w0, w1, w2 before, between and after the two steps show the
gradient at w1: g = (w1 - w2) / lr - m (w0 - w1) / lr. So no optimiser state is read. A tensor whose
step is mostly rounding of its stored float32 weights is not seen. Running statistics show the share
that a step keeps of them in the same way.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

# Shares of a gradient's norm. The limit is above the rounding allowed in a tensor that is seen, and
# below faults that matter, such as a learning rate that is off by this share.
LIMIT = 0.04
MOST_ROUNDING = 0.02
UNIT_ROUNDOFF = 2.0**-24
# A weight decay that is off by more is refused, if it explains most of what is wrong: noise of
# gradients does not lie along the weights.
DECAY_LIMIT, ALONG = 5e-5, 0.5

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """How a step is to be made; `running` has the share that it keeps of each running statistic.

    `rate_before` is the rate of the step before, where that was another one.
    """

    rate: float
    momentum: float
    decay: float = 0.0
    rate_before: float = 0.0
    running: Mapping[str, float] = field(default_factory=dict)

    def gradient(self, w0: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
        """Return the gradient, and what weight decay adds to it, that three weights show."""
        before = self.momentum * (w0 - w1) / (self.rate_before or self.rate)
        return np.asarray((w1 - w2) / self.rate - before)


@dataclass(frozen=True)
class Seen:
    """The largest error of a tensor's gradient, its name, and the share of parameters seen.

    An error is the distance from the right gradient over that gradient's norm; that of a running
    statistic is the same of its move. `decay` is a weight decay beyond the one asked for.
    """

    error: float
    tensor: str
    share: float
    decay: float = 0.0

    @property
    def fault(self) -> str:
        """Say what is wrong; "" if nothing is. Written so that nan is wrong."""
        if not self.share:
            return ""
        if self.decay:
            return ("the steps of this epoch are not those of the network: there is a weight decay "
                    f"of {self.decay:.2g} too much")
        if self.error <= LIMIT:
            return ""
        what = "move" if self.tensor.endswith((".mean", ".variance")) else "gradient"
        return (f"the steps of this epoch are not those of the network: the {what} of "
                f"{self.tensor} is off by {self.error:.2g} of its norm, {LIMIT:g} allowed")


def look(before: Weights, between: Weights, after: Weights, gradients: Weights,
         recipe: Recipe) -> Seen:
    """Compare the gradient of each tensor, and the move of each statistic, that can be seen.

    `gradients` are without weight decay. Under the name of a running statistic they have what a
    step would leave of it that began with zero.
    """
    worst, tensor, seen, total = 0.0, "", 0, 0
    residuals = _Along()
    for name, right in gradients.items():
        w0, w1, w2 = (each[name].astype(np.float64) for each in (before, between, after))
        if name in recipe.running:
            error, rounding = _statistic_error(w1, w2, right, recipe.running[name])
        else:
            right = right + recipe.decay * w1
            found = recipe.gradient(w0, w1, w2)
            error, rounding = _error(found, right, w1, recipe)
            total += right.size
            if rounding <= MOST_ROUNDING:
                seen += right.size
                residuals.add(found - right, w1)
        if rounding <= MOST_ROUNDING and not error <= worst:
            worst, tensor = error, name
    return Seen(worst, tensor, seen / total, residuals.decay(recipe))


def own_gradients(start: Weights, after: Weights, rate: float, running: Mapping[str, float]
                  ) -> dict[str, np.ndarray]:
    """Return what one step without momentum or decay shows, for `look`.

    It began from the weights `start`, and from statistics of 0 and 1.
    """
    found = {}
    for name, value in after.items():
        ours = value.astype(np.float64)
        if name in running:
            found[name] = ours - running[name] * float(name.endswith(".variance"))
        else:
            found[name] = (start[name].astype(np.float64) - ours) / rate
    return found


class _Along:
    """Adds up how much of what is wrong lies along the weights, over tensors."""

    def __init__(self) -> None:
        self.along = self.weights = self.wrong = 0.0
        self.size = 0

    def add(self, wrong: np.ndarray, weights: np.ndarray) -> None:
        self.along += float(np.vdot(wrong, weights))
        self.weights += float(np.vdot(weights, weights))
        self.wrong += float(np.vdot(wrong, wrong))
        self.size += weights.size

    def decay(self, recipe: Recipe) -> float:
        """Return the weight decay beyond the one asked for; 0.0 if there is none."""
        if not self.weights or not math.isfinite(self.along) or not self.wrong:
            return 0.0
        found = self.along / self.weights
        noise = UNIT_ROUNDOFF * (2 + 2 * recipe.momentum) / recipe.rate / math.sqrt(self.size)
        share = abs(self.along) / math.sqrt(self.weights * self.wrong)
        return found if abs(found) > DECAY_LIMIT + 6 * noise and share > ALONG else 0.0


def _error(found: np.ndarray, right: np.ndarray, weights: np.ndarray,
           recipe: Recipe) -> tuple[float, float]:
    """Return a gradient's error, and what rounding of the stored weights may add to it."""
    size = float(np.linalg.norm(right))
    if not size:
        return 0.0, math.inf
    # Each stored weight is off by at most half a unit in its last place, in each of three terms.
    largest = float(np.linalg.norm(weights)) * UNIT_ROUNDOFF
    rounding = largest * (2 + 2 * recipe.momentum) / recipe.rate / size
    distance = float(np.linalg.norm(found - right)) / size
    # Weights that are no numbers are seen.
    return (distance, rounding) if math.isfinite(distance) else (math.inf, 0.0)


def _statistic_error(before: np.ndarray, after: np.ndarray, added: np.ndarray,
                     kept: float) -> tuple[float, float]:
    """Return the error of a running statistic's move, and what rounding may add to it.

    The move shows what the statistic itself hides: once it has settled, any share keeps it.
    """
    right = added - (1 - kept) * before
    size = float(np.linalg.norm(right))
    if not size:
        return 0.0, math.inf
    rounding = 4 * UNIT_ROUNDOFF * float(np.linalg.norm(before)) / size
    distance = float(np.linalg.norm(after - before - right)) / size
    return (distance, rounding) if math.isfinite(distance) else (math.inf, 0.0)
