"""The seconds of a strategy's messages: the fit of the link that each takes times it."""

import math
from collections.abc import Mapping

from analysis.aggregation.links import Fit
from analysis.statistics.bootstrap import NOT_MEASURED, Estimate
from analysis.strategies.facts import Leg, Work
from analysis.strategies.table import of


def missing(strategy: str, fits: Mapping[str, Fit]) -> str:
    """Return why a strategy cannot be predicted with these fits, or ""."""
    known = of(strategy)
    if not known.legs:
        return known.without
    absent = dict.fromkeys(leg.link for leg in known.legs(Work(1.0, 2)) if leg.link not in fits)
    return f"no fit of {', '.join(absent)}" if absent else ""


def predict(strategy: str, work: Work, fits: Mapping[str, Fit]) -> Estimate:
    """Predict the seconds of one aggregation."""
    legs = of(strategy).legs
    return total(legs(work) if legs and work.devices > 1 else [], fits)


def total(legs: list[Leg], fits: Mapping[str, Fit]) -> Estimate:
    """Add up legs, with the interval that the fits' intervals give; nan if a fit is missing.

    Links err independently, the legs over one of them alike.
    """
    if any(leg.link not in fits for leg in legs):
        return NOT_MEASURED
    seconds = sum(fits[leg.link].seconds(leg.messages, leg.size_bytes) for leg in legs)
    halves: dict[str, float] = {}
    for leg in legs:
        half = fits[leg.link].half_width(leg.messages, leg.size_bytes)
        halves[leg.link] = halves.get(leg.link, 0.0) + half
    half = math.hypot(*halves.values())
    return Estimate(seconds, max(0.0, seconds - half), seconds + half, 0)


def swept(legs: list[Leg], fits: Mapping[str, Fit]) -> float:
    """Add up legs by the measured points of their links; nan if a fit is missing."""
    if any(leg.link not in fits for leg in legs):
        return math.nan
    return sum(fits[leg.link].swept_seconds(leg.messages, leg.size_bytes) for leg in legs)
