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
BLOCK = 2**18  # numbers compared at a time: 2 MiB in float64
SHARED = 4  # blocks from which threads share a tensor
THREADS = len(cores(8))
FLOOR = 0.1  # of a layer's move: smaller tensors' norms are mostly rounding


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
    def parts(before: np.ndarray, after: np.ndarray, gradient: np.ndarray
              ) -> tuple[np.ndarray, ...]:
        right = before - np.float64(np.float32(before - rate * gradient))
        found = before - after
        noise = UNIT_ROUNDOFF_FP32 * np.maximum(np.abs(before), np.abs(after))
        return (found * right, np.square(right), np.square(found), np.square(found - right),
                np.square(noise), np.square(noise * right))

    return _errors(sums_of(parts, before, after, gradient))


def momentum_errors(first: np.ndarray, second: np.ndarray, own: np.ndarray, third: np.ndarray,
                    momentum: float) -> Errors:
    """Compare what momentum added to a step with the move before it.

    From `first` to `second` weights moved by the last step. The next step leads to `third`, and
    without momentum to `own`: the same step by a runner that has just loaded `second`.
    """
    def parts(first: np.ndarray, second: np.ndarray, own: np.ndarray, third: np.ndarray
              ) -> tuple[np.ndarray, ...]:
        right, found = momentum * (first - second), own - third
        noise = 2 * UNIT_ROUNDOFF_FP32 * np.abs(second)
        return (found * right, np.square(right), np.square(found), np.square(found - right),
                np.square(noise), np.square(noise * right))

    return _errors(sums_of(parts, first, second, own, third))


def errors_of(found: np.ndarray, right: np.ndarray) -> Errors:
    """Compare two tensors without any rounding."""
    def parts(found: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, ...]:
        zero = np.zeros_like(right)
        return (found * right, np.square(right), np.square(found), np.square(found - right),
                zero, zero)

    return _errors(sums_of(parts, found, right))


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
    def squares(*blocks: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.square, combine(*blocks)))

    return [math.sqrt(total) for total in sums_of(squares, *tensors)]


def sums_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """Sums in float64 of what `combine` makes of tensors of one shape, NaN kept.

    In blocks, because the system needs three times the computing time to clear temporaries as large
    as a tensor of AlexNet. Without BLAS, because its threads compete: nine checks of AlexNet at a
    time took 127 s on two cores with it, 7 s without.
    """
    flat = [tensor.reshape(-1) for tensor in tensors]

    def of_block(first: int) -> list[float]:
        blocks = combine(*(each[first:first + BLOCK].astype(np.float64) for each in flat))
        return [float(block.sum()) for block in blocks]

    firsts = range(0, flat[0].size, BLOCK)
    if len(firsts) < SHARED:
        totals = list(map(of_block, firsts))
    else:  # NumPy lets other threads run meanwhile; sums are in the same order
        with ThreadPoolExecutor(THREADS) as pool:
            totals = list(pool.map(of_block, firsts))
    return [float(sum(column)) for column in zip(*totals, strict=True)]


def quotient(error: float, norm: float) -> float:
    return error / norm if norm else (math.inf if error else 0.0)
