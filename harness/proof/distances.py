"""Says how far what a worker's steps moved is from what they should have moved.

The worker adds up whole tensors itself (`runners.comparisons`); here are the errors of its sums.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import networks
from analysis.proof.tolerances import LATER_STEPS
from runners import comparisons

FLOOR = 0.1  # of a layer's move: smaller tensors' norms are mostly rounding

Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Errors:
    """How far a tensor's gradient x is from the right one r.

    `coefficient` is <x, r> / <r, r> - 1, `norm` |x| / |r| - 1 and `distance` |x - r| / |r|. The
    `rounded_` ones are standard deviations of what rounding of stored weights makes of the first
    and the last.
    """

    coefficient: float
    norm: float
    distance: float
    rounded_coefficient: float = 0.0
    rounded_distance: float = 0.0
    size: float = 0.0  # |r|

    @property
    def beyond_rounding(self) -> float:
        """The distance that rounding of stored weights does not explain, times |r|."""
        return self.size * math.sqrt(np.maximum(0, self.distance**2 - self.rounded_distance**2))


def step_errors(before: np.ndarray, after: np.ndarray, gradient: np.ndarray,
                rate: float) -> Errors:
    """Compare the gradient that a step from fp32 weights shows, (before - after) / rate."""
    return errors_from(comparisons.products_of(comparisons.step_pairs(rate), before, after,
                                               gradient))


def errors_of(found: np.ndarray, right: np.ndarray) -> Errors:
    """Compare two tensors without any rounding."""
    def parts(found: np.ndarray, right: np.ndarray) -> Iterator[Pair]:
        yield from comparisons.pairs(found, right, np.zeros_like(right))

    return errors_from(comparisons.products_of(parts, found, right))


def errors_from(sums: Iterable[float]) -> Errors:
    """Return the errors that the sums of `runners.comparisons.pairs` say."""
    along, square, found, apart, noise, noise_along = sums
    if not square:  # a tensor off the path to the loss, or steps too small for fp32
        other = math.inf if found else 0.0
        return Errors(other, other, other)
    return Errors(along / square - 1, math.sqrt(found / square) - 1, math.sqrt(apart / square),
                  math.sqrt(noise_along) / square, math.sqrt(noise / square), math.sqrt(square))


def later_errors(network: networks.Network, whole: int,
                 files: tuple[Mapping[str, np.ndarray], ...]) -> dict[str, float]:
    """Relative L2 error of each tensor's move by the gradients after the first `whole` (two) steps.

    files: our parameters, the reference's answers after `whole` and after `LATER_STEPS` steps, the
    weights before. Step k of n moves a tensor by lr g (1 + m + ... + m^(n - k)) until then; the
    second gradient follows from the reference after two steps.
    """
    ours, early, late, start = files
    rate, momentum = network.learning_rate, network.momentum
    first, second = (sum(momentum**power for power in range(LATER_STEPS - step + 1))
                     for step in range(1, whole + 1))

    def parts(ours: np.ndarray, late: np.ndarray, early: np.ndarray, gradient: np.ndarray,
              begin: np.ndarray) -> tuple[np.ndarray, ...]:
        next_gradient = (begin - early) / rate - (1 + momentum) * gradient
        return ours - late, begin - late - rate * (first * gradient + second * next_gradient), begin

    errors = {}
    for layer in network.layers:
        moves, differences = {}, {}
        for name in (f"{layer.name}.{each}" for each in layer.parameters):
            parameter, gradient = f"parameter/{name}", f"gradient/{name}"
            difference, moves[name], begin = norms_of(
                parts, ours[name], late[parameter], early[parameter], early[gradient],
                start[name])
            rounding = LATER_STEPS * comparisons.UNIT_ROUNDOFF_FP32 * begin
            differences[name] = np.maximum(0.0, difference - rounding)  # keeps NaN
        floor = FLOOR * math.hypot(*moves.values())
        errors.update({name: quotient(float(differences[name]), max(moves[name], floor))
                       for name in moves})
    return errors


def norms_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """L2 norms of what `combine` makes of tensors of one shape, in float64, NaN kept."""
    def squares(*blocks: np.ndarray) -> tuple[Pair, ...]:
        return tuple((each, each) for each in combine(*blocks))

    return [math.sqrt(total) for total in comparisons.products_of(squares, *tensors)]


def sums_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """Sums in float64 of what `combine` makes of tensors of one shape, NaN kept."""
    found: list[float] = comparisons.totals(
        lambda *blocks: [block.sum() for block in combine(*blocks)], *tensors)
    return found


def quotient(error: float, norm: float) -> float:
    return error / norm if norm else (math.inf if error else 0.0)
