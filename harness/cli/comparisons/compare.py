"""`dlbench compare` and `dlbench bisect`: comparisons of two sides, live or recorded.

Exit codes of `compare`: 0 no regression, 1 regression, 2 wrong use, 3 inconclusive, 4 a side could
not be built or run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import Measuring, Overrides, suite_of, words
from harness.cli.terminal import console, dim, interruptible, new_folder, say, writing
from harness.errors import WrongUse
from harness.validation import CHECKOUT

if TYPE_CHECKING:
    from analysis.compare.report import Comparison
    from harness.campaign.session import Plan
    from harness.comparison.bisection import Step
    from harness.comparison.plan import Request

SUITE = CHECKOUT / "configs" / "compare.yaml"
SuiteFile = Annotated[Path, typer.Option(
    "--suite", metavar="SUITE.yaml", parser=suite_of, help="What to run.")]


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Measuring):
    a: Annotated[str, typer.Argument(
        metavar="A", help="A release (jax==0.9.2), a variant (jax:tuned), a local build "
        "(NAME=/path/python) or a campaign's folder.")]
    b: Annotated[str, typer.Argument(
        metavar="[B]", help="The other side. Without it, A is the folder of a live comparison.")
    ] = ""
    overrides: Overrides = None
    suite: SuiteFile = SUITE
    framework: Annotated[str, typer.Option(
        "--as", metavar="FRAMEWORK", help="What local builds are.")] = ""
    pre: Annotated[bool, typer.Option(
        "--pre", help="A side without a release is the newest pre-release.")] = False
    index_url: Annotated[str, typer.Option(
        metavar="URL", help="Where a side without a release, or with an unlisted one, comes from.")
    ] = ""
    resume: Annotated[bool, typer.Option(
        "--resume", help="Go on with the comparison in DIR.")] = False
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print the plan and an estimate of its time; start nothing.")] = False
    fail_on_regression: Annotated[str | None, typer.Option(
        metavar="SHARE", help="Exit 1 if B is shown to be slower by more than this, as in 3%.")
    ] = None
    threshold: Annotated[list[str] | None, typer.Option(
        metavar="[NETWORK=]SHARE", help="The same, also for one network: resnet50=5%.")] = None
    rules: Annotated[Path | None, typer.Option(
        metavar="FILE.yaml", help="Thresholds and acknowledged regressions.")] = None
    json: Annotated[str, typer.Option(
        metavar="FILE", help="Also write the result as JSON; - is the standard output.")] = ""
    markdown: Annotated[str, typer.Option(
        metavar="FILE", help="Also write a summary as Markdown; - is the standard output.")] = ""
    calibration: Annotated[Path | None, typer.Option(
        metavar="DIR", help="A release against itself on this machine: its false alarms.")] = None
    repeats: Annotated[int, typer.Option(
        min=1, max=1000, help="Of a release against itself: calibrate this machine.")] = 1
    across_machines: Annotated[bool, typer.Option(
        "--across-machines", help="Compare campaigns of different hardware.")] = False


@dataclass(frozen=True, kw_only=True)
class FollowingReleases(Measuring):
    """Options of a command that follows one framework over its releases."""

    framework: Annotated[str, typer.Argument(
        metavar="FRAMEWORK", help="As in jax, or jax:tuned.")]
    overrides: Overrides = None
    suite: SuiteFile = SUITE

    def side(self, release: str) -> str:
        """Name a release as a side of a comparison, in the tuning that the options name."""
        from harness.comparison.sides import split

        name, tuning = split(self.framework)
        return f"{name}=={release}:{tuning}" if tuning else f"{name}=={release}"

    def refuse_idle_interpreters(self, sides: Iterable[str]) -> None:
        """Raise WrongUse for an interpreter that none of the `sides` can use."""
        from harness.environments.interpreters import named

        known = {spec for side in sides for spec in _specs_of(side)}
        for spec in named(self.interpreter):
            if spec not in known:
                raise WrongUse(f"--interpreter {spec}: is of no release that is compared")

    def request(self, a: str, b: str, *overrides: str) -> "Request":
        """Return the comparison of two sides, with the interpreters that are theirs."""
        from harness.comparison.plan import Request
        from harness.environments.interpreters import named

        theirs = {*_specs_of(a), *_specs_of(b)}
        interpreters = [each for each in named(self.interpreter).items() if each[0] in theirs]
        return Request(a, b, self.suite, (*(self.overrides or ()), *overrides),
                       tuple(interpreters))


def _specs_of(side: str) -> tuple[str, str]:
    """Return what may name a side's interpreter: its release, or its framework alone."""
    release = side.partition(":")[0]
    return release, release.partition("==")[0]


@dataclass(frozen=True, kw_only=True)
class BisectOptions(FollowingReleases):
    releases: Annotated[str, typer.Option(
        help="With commas, from a fast one to a slow one.")]
    network: Annotated[str, typer.Option(help="The workload to follow.")]
    threshold: Annotated[str, typer.Option(help="The slowdown that counts, as in 3%.")] = "0%"
    measure: Annotated[str, typer.Option(
        help="time: of a step or call. In inference also p50 or p99, of calls.")] = "time"
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print the plan of one comparison and how many there may be.")] = False


def compare(options: CompareOptions) -> None:
    """Compare two releases, variants or local builds, run live and interleaved, or two campaigns.

    Every workload gets a verdict. Exit 1: regression, 3: inconclusive, 4: a side could not run.
    """
    from analysis.compare import outcome, verdicts
    from analysis.compare.outcome import NotRun
    from harness.campaign.rehearsal import SideFailed
    from harness.cli.comparisons import rules
    from harness.cli.comparisons.outputs import Outputs

    wanted = rules.read(options.fail_on_regression, options.threshold or [], options.rules)
    # Read before anything is measured, which takes minutes to hours.
    known = judge(options.calibration) if options.calibration else None
    if known and not known.same:
        raise WrongUse(f"--calibration {options.calibration}: compares {known.a.name} with "
                       f"{known.b.name}; name a comparison of a release with itself")
    with Outputs(options.json, options.markdown).opened() as outputs:
        try:
            found, folder = _measure(options)
        except SideFailed as failed:
            outputs.write(NotRun(failed.a, failed.b, failed.side, failed.reason))
            say(str(failed), "bold red")
            raise typer.Exit(outcome.EXIT_CODES[outcome.NOT_RUN]) from None
        if found is None:
            return
        if known:
            verdicts.refuse_other_hardware(known.a, found.a)
        found = replace(found, rules=wanted, calibration=known)
        _show(found, folder)
        outputs.write(found)
        reached = outcome.outcome_of(found)
        say(f"Outcome: {outcome.TITLES[reached]}.")
    if code := outcome.EXIT_CODES[reached]:
        raise typer.Exit(code)


def _measure(options: CompareOptions) -> tuple["Comparison | None", Path]:
    """Compare what the options name, and name the result's folder. A plan alone gives none."""
    from harness.cli.plan_table import print_plan
    from harness.comparison.plan import Request
    from harness.comparison.sides import Source, is_recorded
    from harness.environments.interpreters import named

    a, b = options.a, options.b
    if options.resume and options.out is None:
        raise WrongUse("--resume: name the comparison's folder with --out DIR")
    live = bool(b) and not (is_recorded(a) or is_recorded(b))
    given = {"--resume": options.resume, "--repeats": options.repeats > 1,
             "--as": options.framework, "--pre": options.pre, "--index-url": options.index_url,
             "--interpreter": options.interpreter, "--dry-run": options.dry_run,
             "KEY=VALUE": options.overrides}
    if not live and any(given.values()):
        raise WrongUse(f"{', '.join(word for word, value in given.items() if value)}: only for "
                       "live comparisons; recorded campaigns do not change")
    folder = options.out or new_folder("compare")
    if not b:
        if not is_recorded(a):
            raise WrongUse(f"{a}: name the other side too, as in `dlbench compare jax==0.9.2 "
                           "jax==0.10.2`; a folder of a live comparison stands alone")
        return judge(Path(a)), options.out or Path(a)
    if not live:
        return judge_recorded(Path(a), Path(b), options.across_machines), folder
    request = Request(a, b, options.suite, tuple(options.overrides or ()),
                      tuple(named(options.interpreter).items()), options.repeats,
                      options.framework, Source(options.index_url, options.pre))
    if options.dry_run:
        print_plan(_prepare(request, options.allow_dirty))
        return None, folder
    with interruptible(folder, "--resume"):
        run_live(request, folder, options.resume, options.allow_dirty)
    return judge(folder), folder


def bisect(options: BisectOptions) -> None:
    """Find the first release in a list that shows a regression of one workload.

    Each release runs in a live comparison with the first.
    """
    from analysis.compare import calls
    from harness.campaign.rehearsal import SideFailed
    from harness.cli.comparisons.rules import share_of
    from harness.comparison import bisection

    folder = options.out or new_folder("bisect")
    listed = words(options.releases)
    if len(listed) < 2:
        raise WrongUse(f"--releases {options.releases}: write two or more, with commas")
    if twice := next((each for each in listed if listed.count(each) > 1), ""):
        raise WrongUse(f"--releases {options.releases}: {twice} is named twice; name it once")
    share = share_of(options.threshold)
    sides = {each: options.side(each) for each in listed}
    options.refuse_idle_interpreters(sides.values())
    first, network = sides[listed[0]], f"networks={options.network}"
    plan = _prepare(options.request(first, sides[listed[-1]], network), options.allow_dirty)
    bisection.refuse_several(plan.suite, [each for each in plan.trials if each.side == "A"])
    name = bisection.measure_of(options.measure, plan.suite, calls.QUANTILES)
    if options.dry_run:
        from harness.cli.plan_table import print_plan
        from harness.cli.progress import count

        print_plan(plan)
        most = count(1 + (len(listed) - 2).bit_length(), "comparison")
        say(f"The search takes at most {most} like this one, and more where one is inconclusive.")
        return
    steps: list[Step] = []

    def measure(release: str, attempt: int, cut: float) -> "Step":
        more = bisection.more_processes(plan.suite, attempt)
        request = options.request(first, sides[release], network,
                                  *(f"{key}={value}" for key, value in more.items()))
        place = folder / f"{release}-{more['processes']}"
        try:
            run_live(request, place, (place / "campaign.json").exists(), options.allow_dirty)
        except SideFailed as failed:
            steps.append(bisection.Step(release, reason=f"{failed.side}: {failed.reason}"))
        else:
            found = judge(place)
            _show(found, place)
            steps.append(bisection.step_of(release, calls.measures(found.rows), cut, name))
        bisection.write(steps, folder / "bisect.csv")
        return steps[-1]

    with interruptible(folder):
        answer = bisection.search(listed, share, measure)
    say(bisection.sentence(answer))
    say(f"Every comparison: {folder / 'bisect.csv'}")
    if not answer.first:
        raise typer.Exit(1)


def judge(folder: Path) -> "Comparison":
    """Compare the sides of the live comparison in `folder`, each repeat by itself."""
    import pandas as pd

    from analysis.compare import verdicts
    from analysis.compare.report import Comparison
    from analysis.records import reader

    whole = reader.read(folder)
    repeats = verdicts.repeats_of(whole)
    rows = [verdicts.compare(*verdicts.sides_of(each)).assign(repeat=number)
            for number, each in enumerate(repeats)]
    a, b = verdicts.sides_of(whole)
    return Comparison(pd.concat(rows, ignore_index=True), a, b, repeats=len(repeats))


def judge_recorded(a: Path, b: Path, across_machines: bool) -> "Comparison":
    """Compare two recorded campaigns. Raises NotComparable for different hardware."""
    from analysis.compare import verdicts
    from analysis.compare.report import Comparison
    from analysis.records import reader

    sides = [verdicts.recorded(reader.read(folder)) for folder in (a, b)]
    if not across_machines:
        verdicts.refuse_other_hardware(*sides)
    return Comparison(verdicts.compare(*sides), sides[0], sides[1])


def write_page(comparison: "Comparison", out: Path) -> Path:
    """Write a comparison's files into `out`, and hashes in a campaign's folder; return its page."""
    from analysis.compare.report import write
    from analysis.records import manifest

    with writing(out):
        paths = write(comparison, out)
        if (out / "campaign.json").exists():
            manifest.write_manifest(out)
    return next(path for path in paths if path.suffix == ".html")


def _prepare(request: "Request", allow_dirty: bool) -> "Plan":
    """Plan a live comparison; refuse what could not be compared once it is measured."""
    from analysis.compare import verdicts
    from harness.comparison.plan import prepare

    plan = prepare(request, allow_dirty, dim)
    try:
        if plan.trials:
            trials = [trial.to_json() for trial in plan.trials]
            verdicts.refuse_twice({"A": request.a, "B": request.b}, trials)
    except verdicts.NotComparable as error:
        raise WrongUse(str(error)) from None
    return plan


def run_live(request: "Request", folder: Path, resume: bool, allow_dirty: bool) -> None:
    """Run the campaign of a live comparison and show its progress."""
    from harness.campaign import campaign
    from harness.cli.progress import Display, count
    from harness.plan.planner import execution_order

    plan = _prepare(request, allow_dirty)
    work = execution_order(plan.trials, plan.suite.processes, plan.suite.seed)
    names = plan.comparison or {}
    say(f"A: {names['a']}, B: {names['b']}: {count(len(plan.trials), 'trial')}, "
        f"{count(len(work), 'process', 'es')}, records in {folder}")
    with Display(console, plan.suite, work) as display:
        campaign.run(plan, folder, display, resume)


def _show(found: "Comparison", out: Path) -> None:
    from analysis.compare import report

    console.print(report.terminal_table(found))
    for line in report.lines(found):
        say(line)
    say(f"Page: {write_page(found, out)}")
