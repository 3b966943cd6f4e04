"""How far a worker's tensors are from the reference's: relative errors of gradients and of moves, in float64.

Tensors are compared block by block and without BLAS, for several checks compare at a time, each in a thread.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

import networks
from analysis.proof.tolerances import LATER_STEPS

UNIT_ROUNDOFF_FP32 = 2.0**-24
BLOCK = 2**18  # numbers of a tensor that are compared at a time: 2 MiB in float64
FLOOR = 0.1  # of a layer's gradient: below it a tensor's own norm says more of rounding than of the network


def gradient_errors(network: networks.Network, ours: Mapping[str, np.ndarray],
                    reference: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative L2 error of each tensor's gradient: ||ours - reference|| / ||reference||, NaN kept.

    A tensor that carries less than `FLOOR` of its layer's gradient is measured against that share: the shift before another batch
    norm, say, has a gradient that cancels to nothing, and rounding is all that is left of it.
    """
    def parts(ours: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
        return ours - wanted, wanted

    errors = {}
    for layer in network.layers:
        norms = {name: norms_of(parts, ours[f"gradient/{name}"], reference[f"gradient/{name}"])
                 for name in (f"{layer.name}.{each}" for each in layer.parameters)}
        whole = math.hypot(*(norm for _, norm in norms.values()))
        errors.update({name: quotient(difference, max(norm, FLOOR * whole)) for name, (difference, norm) in norms.items()})
    return errors


def move_error(ours: np.ndarray, reference: np.ndarray, start: np.ndarray, steps: int) -> float:
    """Relative error of how far the parameters have moved, less what rounding the stored weights at each step explains."""
    def parts(ours: np.ndarray, reference: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, ...]:
        wanted = reference - start
        return ours - start - wanted, wanted, start

    difference, norm, begin = norms_of(parts, ours, reference, start)
    rounding = steps * UNIT_ROUNDOFF_FP32 * begin
    return difference if math.isnan(difference) else quotient(max(0.0, difference - rounding), norm)


def later_errors(network: networks.Network, whole: int, files: tuple[Mapping[str, np.ndarray], ...]) -> dict[str, float]:
    """Relative L2 error of what the gradients after the first `whole` (two) steps have moved each tensor by, until `LATER_STEPS`.

    files: our answers, the reference's after `whole` and after all steps, and the weights before. The step k of n moves a tensor by
    lr g (1 + m + ... + m^(n - k)) until then; the second gradient follows from where the reference stood after two steps.
    """
    ours, early, late, start = files
    rate, momentum = network.learning_rate, network.momentum
    first, second = (sum(momentum**power for power in range(LATER_STEPS - step + 1)) for step in range(1, whole + 1))

    def parts(ours: np.ndarray, late: np.ndarray, early: np.ndarray, gradient: np.ndarray,
              begin: np.ndarray) -> tuple[np.ndarray, ...]:
        next_gradient = (begin - early) / rate - (1 + momentum) * gradient
        return ours - late, begin - late - rate * (first * gradient + second * next_gradient), begin

    errors = {}
    for layer in network.layers:
        moves, differences = {}, {}
        for name in (f"{layer.name}.{each}" for each in layer.parameters):
            difference, moves[name], begin = norms_of(
                parts, ours[f"parameter/{name}"], late[f"parameter/{name}"], early[f"parameter/{name}"], early[f"gradient/{name}"],
                start[name])
            rounding = LATER_STEPS * UNIT_ROUNDOFF_FP32 * begin
            differences[name] = difference if math.isnan(difference) else max(0.0, difference - rounding)
        floor = FLOOR * math.hypot(*moves.values())
        errors.update({name: quotient(differences[name], max(moves[name], floor)) for name in moves})
    return errors


def norms_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """L2 norms of what `combine` makes of tensors of one shape, in float64, NaN kept."""
    return [math.sqrt(total) for total in sums_of(lambda *blocks: tuple(map(np.square, combine(*blocks))), *tensors)]


def sums_of(combine: Callable[..., tuple[np.ndarray, ...]], *tensors: np.ndarray) -> list[float]:
    """Sums in float64 of what `combine` makes of tensors of one shape, NaN kept.

    A block at a time: for temporaries as large as a tensor of AlexNet the system clears memory three times as long as one computes.
    And without BLAS, whose threads several checks at a time fight for: nine of AlexNet took 127 s on two cores with it, 7 without.
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    blocks = (combine(*(each[first:first + BLOCK].astype(np.float64) for each in flat)) for first in range(0, flat[0].size, BLOCK))
    return [float(sum(column)) for column in zip(*([block.sum() for block in each] for each in blocks), strict=True)]


def quotient(error: float, norm: float) -> float:
    return error / norm if norm else (math.inf if error else 0.0)
