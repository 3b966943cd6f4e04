"""`dlbench compare`: two releases or variants, run live and interleaved as one campaign, or two recorded campaigns.

A live comparison is an ordinary campaign whose trials carry a side, A or B, so that a release can stand against itself. Proof,
records, order and resumption are the campaign's own; what the records say is `analysis.compare.verdicts`'s affair.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare import verdicts
from analysis.compare.report import Comparison, write
from analysis.records import manifest, reader
from harness.campaign import campaign as campaigns
from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite, load_suite
from harness.validation import did_you_mean, short

TUNINGS = ("stock", "tuned")


@dataclass(frozen=True)
class Wish:
    """What a live comparison is asked for: its sides as written, its suite, and how often it is repeated."""

    a: str
    b: str
    suite_file: Path
    overrides: tuple[str, ...] = ()
    interpreters: tuple[tuple[str, Path], ...] = ()
    repeats: int = 1


def is_recorded(word: str) -> bool:
    """Tell a campaign's folder from a framework."""
    return (Path(word) / "campaign.json").exists() or "/" in word


def prepare(wish: Wish, allow_dirty: bool = False) -> campaigns.Campaign:
    """Plan both sides as one campaign. Raises WrongUse for what cannot be meant; starts and builds nothing."""
    if wish.repeats > 1 and wish.a != wish.b:
        raise WrongUse(f"--repeats: calibrates a machine with a release against itself; {wish.a} and {wish.b} are two")
    a, b = (campaigns.prepare(_suite(wish, side), short(wish.suite_file), allow_dirty) for side in (wish.a, wish.b))
    suite = a.suite.model_copy(update={
        "frameworks": (*a.suite.frameworks, *b.suite.frameworks),
        "tunings": tuple(dict.fromkeys([*a.suite.tunings, *b.suite.tunings])),
    })
    trials = [replace(trial, side=side) for side, prepared in (("A", a), ("B", b)) for trial in prepared.trials]
    if trials:
        _refuse_twice(wish, trials)
    comparison = {"a": wish.a, "b": wish.b, "repeats": wish.repeats}
    return replace(a, suite=suite, trials=trials, comparison=comparison)


def split_side(word: str) -> tuple[str, str]:
    """Split `pytorch==2.12.0:tuned` into the framework with its release and a tuning; the tuning may be left out."""
    spec, colon, tuning = word.partition(":")
    if colon and tuning not in TUNINGS:
        raise WrongUse(f"{word}: unknown tuning {tuning}{did_you_mean(tuning, TUNINGS)}")
    return spec, tuning


def judge(folder: Path, threshold: float | None) -> Comparison:
    """Compare the sides of the live comparison in `folder`, each repeat by itself."""
    whole = reader.read(folder)
    repeats = verdicts.repeats_of(whole)
    rows = [verdicts.compare(*verdicts.sides_of(each)).assign(repeat=number) for number, each in enumerate(repeats)]
    a, b = verdicts.sides_of(whole)
    return Comparison(pd.concat(rows, ignore_index=True), a, b, threshold, len(repeats))


def judge_recorded(a: Path, b: Path, across_machines: bool, threshold: float | None) -> Comparison:
    """Compare two recorded campaigns. Raises NotComparable where they were measured on different hardware."""
    sides = [verdicts.recorded(reader.read(folder)) for folder in (a, b)]
    if not across_machines:
        verdicts.refuse_other_hardware(*sides)
    return Comparison(verdicts.compare(*sides), sides[0], sides[1], threshold)


def publish(comparison: Comparison, out: Path) -> Path:
    """Write the comparison's files into `out`, and their hashes where that is a campaign's folder; return its page."""
    try:
        paths = write(comparison, out)
        if (out / "campaign.json").exists():
            manifest.write_manifest(out)
    except OSError as error:
        raise WrongUse(f"{error.filename or out}: {error.strerror}; name another folder with --out") from None
    return next(path for path in paths if path.suffix == ".html")


def parse_threshold(text: str | None) -> float | None:
    """Read `3%` or `0.03` as a share."""
    if text is None:
        return None
    try:
        share = float(text.rstrip("% ")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise WrongUse(f"--fail-on-regression {text}: write a share such as 3% or 0.03")
    return share


def _refuse_twice(wish: Wish, trials: list[Trial]) -> None:
    """Refuse what could not be compared once it is measured."""
    try:
        verdicts.refuse_twice({"A": wish.a, "B": wish.b}, [trial.to_json() for trial in trials])
    except verdicts.NotComparable as error:
        raise WrongUse(str(error)) from None


def _suite(wish: Wish, side: str) -> Suite:
    """The suite of one side, with as many processes as all repeats need."""
    spec, tuning = split_side(side)
    chosen: list[Any] = [f"frameworks={spec}", *([f"tunings={tuning}"] if tuning else [])]
    suite = load_suite(wish.suite_file, [*wish.overrides, *chosen])
    if wish.repeats > 1 and suite.interval is not None:
        raise WrongUse("--repeats: each repeat has the suite's processes; leave `interval` out")
    return suite.model_copy(update={"processes": wish.repeats * suite.processes,
                                    "interpreters": {**suite.interpreters, **dict(wish.interpreters)}})
