"""Compares what a worker's steps moved with what they should have moved, in float64.

Several proofs compare at a time, each in a thread; so tensors are compared in blocks, without BLAS.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

import networks
from analysis.proof.tolerances import LATER_STEPS
from harness.workers.cores import cores

UNIT_ROUNDOFF_FP32 = 2.0**-24
BLOCK = 2**15  # numbers compared at a time: temporaries of 256 KiB stay in a core's cache
SHARE = 2**20  # numbers that one thread takes at a time
THREADS = len(cores(8))
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
    """Compare the gradient that a step from fp32 weights shows, (before - after) / rate.

    A step that is too small for fp32 cannot show; so the right one is rounded like the weights.
    """
    def parts(before: np.ndarray, after: np.ndarray, gradient: np.ndarray) -> tuple[Pair, ...]:
        right = before - np.float64(np.float32(before - rate * gradient))
        found = before - after
        noise = UNIT_ROUNDOFF_FP32 * np.maximum(np.abs(before), np.abs(after))
        return _products(found, right, noise)

    return _errors(products_of(parts, before, after, gradient))


def momentum_errors(first: np.ndarray, second: np.ndarray, own: np.ndarray, third: np.ndarray,
                    momentum: float) -> Errors:
    """Compare what momentum added to a step with the move before it.

    From `first` to `second` weights moved by the last step. The next step leads to `third`, and
    without momentum to `own`: the same step by a runner that has just loaded `second`.
    """
    def parts(first: np.ndarray, second: np.ndarray, own: np.ndarray, third: np.ndarray
              ) -> tuple[Pair, ...]:
        right, found = momentum * (first - second), own - third
        return _products(found, right, 2 * UNIT_ROUNDOFF_FP32 * second)

    return _errors(products_of(parts, first, second, own, third))


def errors_of(found: np.ndarray, right: np.ndarray) -> Errors:
    """Compare two tensors without any rounding."""
    def parts(found: np.ndarray, right: np.ndarray) -> tuple[Pair, ...]:
        return _products(found, right, np.zeros_like(right))

    return _errors(products_of(parts, found, right))


def _products(found: np.ndarray, right: np.ndarray, noise: np.ndarray) -> tuple[Pair, ...]:
    apart, along = found - right, noise * right
    return ((found, right), (right, right), (found, found), (apart, apart), (noise, noise),
            (along, along))


def _errors(sums: list[float]) -> Errors:
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
            rounding = LATER_STEPS * UNIT_ROUNDOFF_FP32 * begin
            differences[name] = np.maximum(0.0, difference - rounding)  # keeps NaN
        floor = FLOOR * math.hypot(*moves.values())
        errors.update({name: quotient(float(differences[name]), max(moves[name], floor))
                       for name in moves})
    return errors


def norms_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """L2 norms of what `combine` makes of tensors of one shape, in float64, NaN kept."""
    def squares(*blocks: np.ndarray) -> tuple[Pair, ...]:
        return tuple((each, each) for each in combine(*blocks))

    return [math.sqrt(total) for total in products_of(squares, *tensors)]


def products_of(combine: Callable[..., tuple[Pair, ...]], *tensors: np.ndarray) -> list[float]:
    """Inner products in float64 of the pairs that `combine` makes of tensors of one shape.

    NaN is kept. einsum reads each pair once and calls no BLAS, whose threads compete: nine checks
    of AlexNet at a time took 127 s on two cores with it, 7 s without.
    """
    return _totals(lambda *blocks: [np.einsum("i,i->", *pair) for pair in combine(*blocks)],
                   *tensors)


def sums_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """Sums in float64 of what `combine` makes of tensors of one shape, NaN kept."""
    return _totals(lambda *blocks: [block.sum() for block in combine(*blocks)], *tensors)


def _totals(of_block: Callable[..., list[np.float64]], *tensors: np.ndarray) -> list[float]:
    """Add up what `of_block` makes of blocks of tensors, in the same order whatever the threads."""
    flat = [tensor.reshape(-1) for tensor in tensors]

    def of_share(share: int) -> list[float]:
        found = [of_block(*(each[first:min(first + BLOCK, share + SHARE)].astype(np.float64)
                            for each in flat))
                 for first in range(share, min(share + SHARE, flat[0].size), BLOCK)]
        return [float(sum(column)) for column in zip(*found, strict=True)]

    shares = range(0, max(1, flat[0].size), SHARE)
    if len(shares) == 1:
        return of_share(0)
    # NumPy lets other threads run meanwhile.
    with ThreadPoolExecutor(THREADS) as pool:
        return [float(sum(column)) for column in zip(*pool.map(of_share, shares), strict=True)]


def unchanged(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two tensors of one shape are equal; by blocks, so that no large mask is made."""
    ours, theirs = one.reshape(-1), other.reshape(-1)
    return all(np.array_equal(ours[first:first + BLOCK], theirs[first:first + BLOCK])
               for first in range(0, ours.size, BLOCK))


def quotient(error: float, norm: float) -> float:
    return error / norm if norm else (math.inf if error else 0.0)
