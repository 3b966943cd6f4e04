"""Relative errors of a worker's gradients and moves against the reference, in float64.

Several checks compare at a time, each in a thread; so tensors are compared in blocks, without BLAS.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

import networks
from analysis.proof.tolerances import LATER_STEPS

UNIT_ROUNDOFF_FP32 = 2.0**-24
BLOCK = 2**18  # numbers compared at a time: 2 MiB in float64
FLOOR = 0.1  # of a layer's gradient: smaller tensors' norms are mostly rounding


def gradient_errors(network: networks.Network, ours: Mapping[str, np.ndarray],
                    reference: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative L2 error of each tensor's gradient: ||ours - reference|| / ||reference||, NaN kept.

    A tensor with less than `FLOOR` of its layer's gradient is measured against that share: the
    shift before another batch norm, for example, has a gradient that cancels to rounding.
    """
    def parts(ours: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
        return ours - wanted, wanted

    errors = {}
    for layer in network.layers:
        norms = {name: norms_of(parts, ours[f"gradient/{name}"], reference[f"gradient/{name}"])
                 for name in (f"{layer.name}.{each}" for each in layer.parameters)}
        whole = math.hypot(*(norm for _, norm in norms.values()))
        errors.update({name: quotient(difference, max(norm, FLOOR * whole))
                       for name, (difference, norm) in norms.items()})
    return errors


def move_error(ours: np.ndarray, reference: np.ndarray, start: np.ndarray, steps: int) -> float:
    """Relative error of the parameters' move, less what rounding of stored weights explains."""
    def parts(ours: np.ndarray, reference: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, ...]:
        wanted = reference - start
        return ours - start - wanted, wanted, start

    difference, norm, begin = norms_of(parts, ours, reference, start)
    rounding = steps * UNIT_ROUNDOFF_FP32 * begin
    if math.isnan(difference):
        return difference
    return quotient(max(0.0, difference - rounding), norm)


def later_errors(network: networks.Network, whole: int,
                 files: tuple[Mapping[str, np.ndarray], ...]) -> dict[str, float]:
    """Relative L2 error of each tensor's move by the gradients after the first `whole` (two) steps.

    files: our answers, the reference's after `whole` and after `LATER_STEPS`, the weights before.
    Step k of n moves a tensor by lr g (1 + m + ... + m^(n - k)) until then; the second gradient
    follows from the reference after two steps.
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
                parts, ours[parameter], late[parameter], early[parameter], early[gradient],
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
    totals = []
    for first in range(0, flat[0].size, BLOCK):
        blocks = combine(*(each[first:first + BLOCK].astype(np.float64) for each in flat))
        totals.append([block.sum() for block in blocks])
    return [float(sum(column)) for column in zip(*totals, strict=True)]


def quotient(error: float, norm: float) -> float:
    return error / norm if norm else (math.inf if error else 0.0)
