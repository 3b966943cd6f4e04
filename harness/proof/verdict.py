"""The outcome of a proof: what is wrong, how large errors are, and what the proof could see."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

# A gradient's strength is stated for the tensors that together hold this share of all parameters.
MOST_PARAMETERS = 0.95


@dataclass(frozen=True)
class Strength:
    """The smallest faults that would have been refused; 1 or more: not even a missing update.

    `rate` is an error of the learning rate, `gradient` one of the scale of a tensor's gradient (in
    the tensors that hold 95 % of the parameters). `frozen` is the share of the parameters in
    tensors that could stand still unseen.
    """

    rate: float = math.nan
    frozen: float = math.nan
    gradient: float = math.nan


@dataclass(frozen=True)
class Verdict:
    """The outcome for one framework and network. Errors are NaN if they were not measured."""

    verdict: str  # same, different, unsupported
    reason: str = ""  # what differs; of `same` what could not be compared
    parameters: int = 0
    loss_error: float = math.nan
    gradient_error: float = math.nan  # largest distance of a layer's gradient
    trajectory_error: float = math.nan  # of a tensor's momentum, in scale or direction
    copies_error: float = math.nan  # of several devices whose copies are not equal in every bit
    failure: str = ""  # the kind, where the worker failed instead of answering
    strength: Strength = Strength()
    limit_share: float = math.nan  # the largest error as a share of what was allowed
    first_seconds: float = 0.0  # of the first steps, in which some frameworks compile
    draw: int = 0  # of weights and samples, which the proof ended with


@dataclass
class Findings:
    """What the comparisons of one proof have found so far."""

    # Faults that no rounding explains, and those that another draw may clear.
    exact_faults: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # what could not be compared
    loss_error: float = math.nan
    gradient_error: float = math.nan
    momentum_error: float = math.nan
    copies_error: float = math.nan
    limit_share: float = math.nan
    first_seconds: float = 0.0
    trained: int = 0  # steps of the plays
    rate: float = math.inf  # smallest error of the learning rate that the head shows
    # The limits of scale of a part, one of each kind of weights.
    seen: dict[str, list[float]] = field(default_factory=dict)

    def allows(self, error: float, limit: float) -> bool:
        """Return whether an error is within its limit, and keep the largest share of a limit."""
        share = math.inf if math.isnan(error) else error / limit
        self.limit_share = float(np.fmax(self.limit_share, share))
        return error <= limit

    def verdict(self, parameters: int, strength: Strength) -> Verdict:
        reasons = [*self.exact_faults, *self.faults]
        return Verdict("different" if reasons else "same", "; ".join(reasons or self.remarks),
                       parameters, self.loss_error, self.gradient_error, self.momentum_error,
                       self.copies_error, strength=strength, limit_share=self.limit_share,
                       first_seconds=self.first_seconds)

    def strength(self, sizes: Mapping[str, int]) -> Strength:
        """Return the strength of the proof of parts with so many parameters."""
        weakest = {name: min(self.seen.get(name, [math.inf])) for name in sizes}
        total = sum(sizes.values())
        frozen = sum(size for name, size in sizes.items() if weakest[name] >= 1) / total
        reached, gradient = 0.0, math.inf
        for name in sorted(weakest, key=lambda name: weakest[name]):
            reached, gradient = reached + sizes[name], weakest[name]
            if reached >= MOST_PARAMETERS * total:
                break
        return Strength(min(self.rate, gradient), frozen, gradient)


def nan_last(error: float) -> float:
    """Return an error as a key of `max` that takes NaN for the largest."""
    return math.inf if math.isnan(error) else error


def range_of(limit: float) -> str:
    """Return in words which multiples of the right value are allowed."""
    return f"{1 - limit:.5g} to {1 + limit:.5g}"
