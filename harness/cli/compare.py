"""`dlbench compare` and `dlbench bisect`: two sides run live or recorded, with a verdict on each workload."""

import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from harness.errors import WrongUse
from harness.validation import CHECKOUT

if TYPE_CHECKING:
    from analysis.compare.report import Comparison
    from harness.campaign.bisection import Step
    from harness.campaign.comparison import Request
    from harness.campaign.session import Plan

console = Console()

SUITE = CHECKOUT / "configs" / "compare.yaml"
SuiteFile = Annotated[Path, typer.Option("--suite", metavar="SUITE.yaml", help="What to run.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in networks=fcn5 batch=64.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: a folder of its own under results/.")]
AllowDirty = Annotated[bool, typer.Option("--allow-dirty", help="Measure on a GPU that others use or that is throttled.")]
Interpreter = Annotated[list[str] | None, typer.Option("--interpreter", metavar="FRAMEWORK[==RELEASE]=PATH",
                                                       help="An interpreter that has the framework already.")]


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A release (jax==0.9.2), variant (jax:tuned), or a campaign's folder.")],
    b: Annotated[str, typer.Argument(metavar="[B]", help="The other; left out, A is the folder of a live comparison.")] = "",
    overrides: Overrides = None,
    suite: SuiteFile = SUITE,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the comparison in DIR.")] = False,
    fail_on_regression: Annotated[str | None, typer.Option(metavar="SHARE", help="Exit 1 where B is shown to be slower by more "
                                                           "than this, as in 3%.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of a release against itself: calibrate this machine.")] = 1,
    across_machines: Annotated[bool, typer.Option("--across-machines", help="Compare campaigns of different hardware.")] = False,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Compare two releases or variants, run live and interleaved, or two recorded campaigns; a verdict a workload."""
    from analysis.compare import verdicts
    from harness.campaign.comparison import Request, is_recorded
    from harness.environments.interpreters import named

    threshold = parse_threshold(fail_on_regression)
    if resume and out is None:
        raise WrongUse("--resume: name the comparison's folder with --out DIR")
    live = bool(b) and not (is_recorded(a) or is_recorded(b))
    given = {"--resume": resume, "--repeats": repeats > 1, "--interpreter": interpreter, "KEY=VALUE": overrides}
    if not live and any(given.values()):
        raise WrongUse(f"{', '.join(word for word, value in given.items() if value)}: meant for live comparisons; "
                       "what is recorded stays as it was measured")
    if not b:
        folder, found = Path(a), judge(Path(a), threshold)
    elif not live:
        folder = Path("results") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
        found = judge_recorded(Path(a), Path(b), across_machines, threshold)
    else:
        folder = out or Path("results") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
        interpreters = tuple(named(interpreter).items())
        request = Request(a, b, suite, tuple(overrides or ()), interpreters, repeats)
        _live(request, folder, resume, allow_dirty, _again(folder, "--resume"))
        found = judge(folder, threshold)
    _show(found, out or folder)
    regressed = threshold is not None and len(verdicts.regressions(found.rows, threshold)[0])
    if regressed or (found.rows["verdict"] == verdicts.NOT_COMPARED).any():
        raise typer.Exit(1)


def bisect(
    framework: Annotated[str, typer.Argument(metavar="FRAMEWORK", help="As in jax, or jax:tuned.")],
    releases: Annotated[str, typer.Option(help="With commas, from one that is fast to one that is slow.")],
    network: Annotated[str, typer.Option(help="The workload to follow.")],
    overrides: Overrides = None,
    suite: SuiteFile = SUITE,
    threshold: Annotated[str, typer.Option(help="The slow-down that counts, as in 3%.")] = "0%",
    out: Out = None,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Find the first release in a list that shows a regression of one workload, by live comparisons with the first."""
    from harness.campaign import bisection
    from harness.campaign.comparison import Request, split_side
    from harness.environments.interpreters import named

    interpreters = tuple(named(interpreter).items())
    folder = out or Path("results") / f"bisect-{datetime.now():%Y%m%d-%H%M%S}"
    listed = [release.strip() for release in releases.split(",") if release.strip()]
    if len(listed) < 2:
        raise WrongUse(f"--releases {releases}: write two or more, with commas")
    share = parse_threshold(threshold) or 0.0
    name, tuning = split_side(framework)
    sides = {each: f"{name}=={each}" + (f":{tuning}" if tuning else "") for each in listed}
    words = (*(overrides or ()), f"networks={network}")
    ends = Request(sides[listed[0]], sides[listed[-1]], suite, words, interpreters)
    plan = _prepare(ends, allow_dirty)
    bisection.refuse_several(plan.suite, [trial for trial in plan.trials if trial.side == "A"])
    steps: list[Step] = []

    def measure(release: str, attempt: int, cut: float) -> "Step":
        more = bisection.more_processes(plan.suite, attempt)
        request = replace(ends, b=sides[release], overrides=(*words, *(f"{key}={value}" for key, value in more.items())))
        place = folder / f"{release}-{more['processes']}"
        _live(request, place, (place / "campaign.json").exists(), allow_dirty, _again(folder))
        found = judge(place, None)
        _show(found, place)
        steps.append(bisection.step_of(release, found.rows, cut))
        bisection.write(steps, folder / "bisect.csv")
        return steps[-1]

    answer = bisection.search(listed, share, measure)
    _say(bisection.tell(answer))
    _say(f"Every comparison: {folder / 'bisect.csv'}")
    if not answer.first:
        raise typer.Exit(1)


def judge(folder: Path, threshold: float | None) -> "Comparison":
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
    return Comparison(pd.concat(rows, ignore_index=True), a, b, threshold, len(repeats))


def judge_recorded(a: Path, b: Path, across_machines: bool, threshold: float | None) -> "Comparison":
    """Compare two recorded campaigns. Raises NotComparable for different hardware."""
    from analysis.compare import verdicts
    from analysis.compare.report import Comparison
    from analysis.records import reader

    sides = [verdicts.recorded(reader.read(folder)) for folder in (a, b)]
    if not across_machines:
        verdicts.refuse_other_hardware(*sides)
    return Comparison(verdicts.compare(*sides), sides[0], sides[1], threshold)


def write_page(comparison: "Comparison", out: Path) -> Path:
    """Write a comparison's files into `out`, and hashes in a campaign's folder; return its page."""
    from analysis.compare.report import write
    from analysis.records import manifest

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


def _prepare(request: "Request", allow_dirty: bool) -> "Plan":
    """Plan a live comparison; refuse what could not be compared once it is measured."""
    from analysis.compare import verdicts
    from harness.campaign import comparison

    plan = comparison.prepare(request, allow_dirty)
    try:
        if plan.trials:
            trials = [trial.to_json() for trial in plan.trials]
            verdicts.refuse_twice({"A": request.a, "B": request.b}, trials)
    except verdicts.NotComparable as error:
        raise WrongUse(str(error)) from None
    return plan


def _live(request: "Request", folder: Path, resume: bool, allow_dirty: bool, again: str) -> None:
    """Run a live comparison's campaign; `again` is the command that continues a stopped one."""
    from harness.campaign import campaign
    from harness.cli.progress import Display
    from harness.plan.planner import execution_order

    plan = _prepare(request, allow_dirty)
    work = execution_order(plan.trials, plan.suite.processes, plan.suite.seed)
    _say(f"A: {request.a}, B: {request.b}: {len(plan.trials)} trials, {len(work)} processes, records in {folder}")
    try:
        with Display(console, plan.suite, work) as display:
            campaign.run(plan, folder, display, resume)
    except KeyboardInterrupt:
        _say(f"\nStopped; every finished process is kept. Go on with: {again}")
        raise typer.Exit(1) from None


def _again(folder: Path, *options: str) -> str:
    """The command that runs now, once more with its folder and with `options`."""
    words = [word for word in sys.argv[1:] if word not in options]
    place = [] if any(word.partition("=")[0] == "--out" for word in words) else ["--out", str(folder)]
    return shlex.join(["dlbench", *words, *place, *options])


def _show(found: "Comparison", out: Path) -> None:
    from analysis.compare import report

    console.print(report.terminal_table(found))
    for line in report.lines(found):
        _say(line)
    _say(f"Page: {write_page(found, out)}")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
