"""What dropout's random masks make of losses and gradients, and whether a worker's do the same."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from harness.proof.case import EXACT, Case
from harness.proof.distances import Errors
from harness.proof.plays import Plays
from harness.proof.questions import MASKS
from harness.proof.verdict import Findings

MASKED_SIGMAS = 4.0  # of what dropout masks make of a number
# The allowed share of the variance that dropout masks make, pooled over tensors. A rate of 0.4 in
# place of 0.5 makes 0.67 of the variance.
MASKED = 0.1


class Masked(NamedTuple):
    """What masks make of a part's gradient g, relative to the norm of that without dropout, g0.

    `coefficient` is the mean of <g, g0>, and `deviation` its standard deviation. `square` is the
    squared norm of the mean g. `along` is the standard deviation of <g, mean g>, and `spread` that
    of |g|^2. `variance` is the mean of |g - mean g|^2, and `least_norm` the least |g|^2.
    """

    coefficient: float
    deviation: float
    square: float
    along: float
    spread: float
    variance: float
    deviation_of_variance: float
    least_norm: float


def loss(case: Case) -> tuple[float, float]:
    """Return by what masks multiply the loss, and how far from it the loss may be."""
    mean, deviation = case.questions.masks(case.question)["loss"]
    return mean, MASKED_SIGMAS * deviation * _averaged(case)


def head(case: Case) -> tuple[float, float]:
    """Return by what masks multiply the head's calibrated gradient, and how far it may be off."""
    mean, deviation = case.questions.masked_head(case.question)
    return mean, MASKED_SIGMAS * deviation * _averaged(case) / mean


def gradient(case: Case, part: str) -> tuple[float, float]:
    """Return how far masks may move the coefficient and the norm of a part's gradient.

    The squared norm of a mean of n gradients has the standard deviation 2 `along` / sqrt(n), and
    `spread` / n from the products of two masks.
    """
    masks, expected = _masks_of(case, part), expected_square(case, part)
    coefficient = masks.deviation * _averaged(case) / max(masks.coefficient, 0.1)
    square = 2 * masks.along * _averaged(case) + masks.spread / case.repeats
    share = MASKED_SIGMAS * square / expected if expected else 0.0
    # Of a norm, whose square may be off by this share.
    norm = max(math.sqrt(1 + share) - 1, 1 - math.sqrt(max(0.0, 1 - share)))
    return MASKED_SIGMAS * coefficient, norm


def expected_square(case: Case, part: str) -> float:
    """Return the squared norm of a mean over the masks of all repeats."""
    masks = _masks_of(case, part)
    return max(masks.square, 0.0) + masks.variance / case.repeats


def may_stop(case: Case, part: str) -> bool:
    """Return whether masks may leave a part without a gradient, as they did in one of the runs."""
    return _masks_of(case, part).least_norm == 0


def from_masked_mean(case: Case, part: str, error: Errors) -> Errors:
    """Turn errors from the gradient without dropout into those from the mean over masks."""
    masks, expected = _masks_of(case, part), expected_square(case, part)
    if not masks.coefficient or not expected:
        return error
    return replace(error, coefficient=(1 + error.coefficient) / masks.coefficient - 1,
                   norm=(1 + error.norm) / math.sqrt(expected) - 1)


def compare_masks(case: Case, found: Plays, findings: Findings) -> None:
    """Compare the variance that dropout makes: half the squared distance of two steps."""
    assert found.again
    shares, deviations = [], []
    for part, name, rows in case.parts:
        masks = _masks_of(case, part)
        if not masks.variance > EXACT:
            continue
        apart, rounding = found.again.sums[0]["masks"][part]
        norm = case.questions.norm_of_gradient(case.question, part, name, rows)
        wanted = masks.variance / case.repeats * norm**2
        if rounding >= EXACT * wanted:
            continue
        if not apart:
            findings.exact_faults.append(f"dropout's masks change nothing in {part}: none, or the "
                                         "same in each step")
            return
        shares.append(apart / 2 / wanted)
        deviations.append(masks.deviation_of_variance / masks.variance)
    if not shares:
        return
    share = float(np.mean(shares))
    allowed = MASKED + MASKED_SIGMAS * float(np.mean(deviations))
    if not findings.allows(abs(share - 1), allowed):
        findings.faults.append(f"dropout's masks make {share:.2g} times the variance that they "
                               f"must (allowed {1 - allowed:.2g} to {1 + allowed:.2g}): another "
                               "rate, or the same masks in each step")


def _masks_of(case: Case, part: str) -> Masked:
    return Masked(*case.questions.masks(case.question)["tensors"][part])


def _averaged(case: Case) -> float:
    """The standard deviation of a mean over this batch's masks less the reference's mean."""
    return math.sqrt(1 / case.repeats + 1 / MASKS)
