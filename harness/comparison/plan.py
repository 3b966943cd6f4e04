"""Plans `dlbench compare` of two releases, variants or builds as one campaign.

A live comparison is an ordinary campaign whose trials carry a side, A or B, so that a release can
be compared with itself. `harness.cli.comparisons.compare` reads what it shows from the records.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.campaign import campaign
from harness.campaign.rehearsal import SideFailed
from harness.campaign.session import Plan
from harness.comparison import sides
from harness.comparison.sides import Side, Source
from harness.environments.store import BuildFailed, Progress
from harness.errors import WrongUse
from harness.machine import hardware
from harness.plan.suite import Suite, load_suite
from harness.validation import short


@dataclass(frozen=True)
class Request:
    """What a live comparison compares: its sides as written, its suite, and its repeats.

    `framework` is that of sides that are local builds; `source` has releases that no recipe lists.
    """

    a: str
    b: str
    suite_file: Path
    overrides: tuple[str, ...] = ()
    interpreters: tuple[tuple[str, Path], ...] = ()
    repeats: int = 1
    framework: str = ""
    source: Source = field(default_factory=Source)


def prepare(request: Request, allow_dirty: bool = False,
            progress: Progress = lambda text: None) -> Plan:
    """Plan both sides as one campaign; start nothing. Raises WrongUse for wrong input.

    Releases that no recipe lists are looked up; SideFailed says that one was not found.
    """
    if request.repeats > 1 and request.a != request.b:
        raise WrongUse("--repeats: calibrates a machine with a release against itself; "
                       f"{request.a} and {request.b} are two")
    both = [sides.read(word, request.framework) for word in (request.a, request.b)]
    if request.framework and not any(side.interpreter or side.wheel for side in both):
        raise WrongUse(f"--as {request.framework}: is for local builds, as in A=/path/python")
    both = _resolved(request, both, progress)
    sides.refuse_one_build(*both)
    suites = [_suite(request, side) for side in both]
    if suites[0].until:
        raise WrongUse(f"{short(request.suite_file)}: until: a comparison times steps alone; leave "
                       "the key out, or measure with `dlbench run`")
    a, b = (campaign.prepare_side(_with_interpreter(suite, side), short(request.suite_file),
                                  allow_dirty) for suite, side in zip(suites, both, strict=True))
    suite = suites[0].model_copy(update={
        "frameworks": (*a.suite.frameworks, *b.suite.frameworks),
        "tunings": tuple(dict.fromkeys([*a.suite.tunings, *b.suite.tunings])),
    })
    trials = [replace(trial, side=side) for side, plan in (("A", a), ("B", b))
              for trial in plan.trials]
    local = {letter: str(side.interpreter)
             for letter, side in zip("AB", both, strict=True) if side.interpreter}
    wheels = {letter: {"url": side.wheel.url, "index": side.wheel.index}
              for letter, side in zip("AB", both, strict=True) if side.wheel}
    comparison = {"a": both[0].name, "b": both[1].name, "repeats": request.repeats,
                  **({"local": local} if local else {}), **({"wheels": wheels} if wheels else {})}
    plan = replace(a, suite=suite, trials=trials, comparison=comparison)
    campaign.refuse_idle(plan)
    return plan


def _resolved(request: Request, both: list[Side], progress: Progress) -> list[Side]:
    """Look up the releases that no recipe lists, each once."""
    source = request.source
    if source != Source() and not any(map(source.serves, both)):
        raise WrongUse("--pre, --index-url: are for a side without a release, or with one that no "
                       f"recipe lists; {request.a} and {request.b} need neither")
    found: dict[Side, Side] = {}
    for letter, side in zip("AB", both, strict=True):
        if source.serves(side) and side not in found:
            asked = _suite(request, side).device
            device = campaign.choose_device(asked, hardware.describe())
            try:
                found[side] = sides.resolved(side, source, device, progress)
            except BuildFailed as failure:
                raise SideFailed({"a": request.a, "b": request.b}, letter, str(failure)) from None
    return [found.get(side, side) for side in both]


def _suite(request: Request, side: Side) -> Suite:
    """Return the suite of one side, with as many processes as all repeats need."""
    chosen: list[Any] = [f"frameworks={side.spec}",
                         *([f"tunings={side.tuning}"] if side.tuning else [])]
    suite = load_suite(request.suite_file, [*request.overrides, *chosen])
    if request.repeats > 1 and suite.interval is not None:
        raise WrongUse("--repeats: each repeat has the suite's processes; leave `interval` out")
    return suite.model_copy(update={
        "processes": request.repeats * suite.processes,
        "interpreters": {**suite.interpreters, **dict(request.interpreters)}})


def _with_interpreter(suite: Suite, side: Side) -> Suite:
    """Return the suite of a side whose framework is a local build."""
    own = {side.spec: side.interpreter} if side.interpreter else {}
    return suite.model_copy(update={"interpreters": {**suite.interpreters, **own}})
