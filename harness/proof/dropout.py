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
    """What masks make of a part's gradient, relative to that without: `Answers.masks` says how."""

    mean: float
    deviation: float
    norm: float
    deviation_of_norm: float
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
    """Return how far masks may move the coefficient and the norm of a part's gradient."""
    masks = _masks_of(case, part)
    return (MASKED_SIGMAS * masks.deviation * _averaged(case) / max(masks.mean, 0.1),
            MASKED_SIGMAS * masks.deviation_of_norm * _averaged(case))


def may_stop(case: Case, part: str) -> bool:
    """Return whether masks may leave a part without a gradient, as they did in one of the runs."""
    return _masks_of(case, part).least_norm == 0


def from_masked_mean(case: Case, part: str, error: Errors) -> Errors:
    """Turn errors from the gradient without dropout into those from the mean over masks."""
    masks = _masks_of(case, part)
    expected = max(masks.norm - masks.variance, 0) + masks.variance / case.repeats
    if not masks.mean or not expected:
        return error
    return replace(error, coefficient=(1 + error.coefficient) / masks.mean - 1,
                   norm=(1 + error.norm)**2 / expected - 1)


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
