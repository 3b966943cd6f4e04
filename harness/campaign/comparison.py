"""Plans `dlbench compare` of two releases or variants as one campaign that interleaves them.

A live comparison is an ordinary campaign whose trials carry a side, A or B, so that a release can
be compared with itself. `harness.cli.compare` reads what it shows from the records.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from harness.campaign import campaign
from harness.campaign.session import Plan
from harness.errors import WrongUse
from harness.plan.suite import Suite, Tuning, load_suite
from harness.validation import did_you_mean, short


@dataclass(frozen=True)
class Request:
    """What a live comparison compares: its sides as written, its suite, and its repeats."""

    a: str
    b: str
    suite_file: Path
    overrides: tuple[str, ...] = ()
    interpreters: tuple[tuple[str, Path], ...] = ()
    repeats: int = 1


def is_recorded(word: str) -> bool:
    """Whether a word names a campaign's folder and not a framework."""
    return os.path.isfile(Path(word) / "campaign.json") or "/" in word


def prepare(request: Request, allow_dirty: bool = False) -> Plan:
    """Plan both sides as one campaign; start nothing. Raises WrongUse for wrong input."""
    if request.repeats > 1 and request.a != request.b:
        raise WrongUse("--repeats: calibrates a machine with a release against itself; "
                       f"{request.a} and {request.b} are two")
    a, b = (campaign.prepare_side(_suite(request, side), short(request.suite_file), allow_dirty)
            for side in (request.a, request.b))
    suite = a.suite.model_copy(update={
        "frameworks": (*a.suite.frameworks, *b.suite.frameworks),
        "tunings": tuple(dict.fromkeys([*a.suite.tunings, *b.suite.tunings])),
    })
    trials = [replace(trial, side=side) for side, plan in (("A", a), ("B", b))
              for trial in plan.trials]
    comparison = {"a": request.a, "b": request.b, "repeats": request.repeats}
    plan = replace(a, suite=suite, trials=trials, comparison=comparison)
    campaign.refuse_idle(plan)
    return plan


def split_side(word: str) -> tuple[str, str]:
    """Split `pytorch==2.12.0:tuned` into the release and the tuning, which is optional."""
    spec, colon, tuning = word.partition(":")
    if colon and tuning not in get_args(Tuning):
        raise WrongUse(f"{word}: unknown tuning {tuning}{did_you_mean(tuning, get_args(Tuning))}")
    return spec, tuning


def _suite(request: Request, side: str) -> Suite:
    """Return the suite of one side, with as many processes as all repeats need."""
    spec, tuning = split_side(side)
    chosen: list[Any] = [f"frameworks={spec}", *([f"tunings={tuning}"] if tuning else [])]
    suite = load_suite(request.suite_file, [*request.overrides, *chosen])
    if request.repeats > 1 and suite.interval is not None:
        raise WrongUse("--repeats: each repeat has the suite's processes; leave `interval` out")
    return suite.model_copy(update={
        "processes": request.repeats * suite.processes,
        "interpreters": {**suite.interpreters, **dict(request.interpreters)}})
