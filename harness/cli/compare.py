"""The words of `dlbench compare` and `dlbench bisect`: they read options, call harness.campaign.comparison and harness.campaign.bisection, and print."""

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
    from harness.campaign.comparison import Wish

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
    from harness.campaign import comparison as comparing
    from harness.environments.interpreters import named

    threshold = comparing.parse_threshold(fail_on_regression)
    if resume and out is None:
        raise WrongUse("--resume: name the comparison's folder with --out DIR")
    live = bool(b) and not (comparing.is_recorded(a) or comparing.is_recorded(b))
    given = {"--resume": resume, "--repeats": repeats > 1, "--interpreter": interpreter, "KEY=VALUE": overrides}
    if not live and any(given.values()):
        raise WrongUse(f"{', '.join(word for word, value in given.items() if value)}: meant for live comparisons; "
                       "what is recorded stays as it was measured")
    if not b:
        folder, found = Path(a), comparing.judge(Path(a), threshold)
    elif not live:
        folder = Path("results") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
        found = comparing.judge_recorded(Path(a), Path(b), across_machines, threshold)
    else:
        folder = out or Path("results") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
        wish = comparing.Wish(a, b, suite, tuple(overrides or ()), tuple(named(interpreter).items()), repeats)
        _live(wish, folder, resume, allow_dirty, _again(folder, "--resume"))
        found = comparing.judge(folder, threshold)
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
    from harness.campaign import bisection as bisecting
    from harness.campaign import comparison as comparing
    from harness.environments.interpreters import named

    interpreters = tuple(named(interpreter).items())
    folder = out or Path("results") / f"bisect-{datetime.now():%Y%m%d-%H%M%S}"
    listed = [release.strip() for release in releases.split(",") if release.strip()]
    if len(listed) < 2:
        raise WrongUse(f"--releases {releases}: write two or more, with commas")
    share = comparing.parse_threshold(threshold) or 0.0
    name, tuning = comparing.split_side(framework)
    sides = {each: f"{name}=={each}" + (f":{tuning}" if tuning else "") for each in listed}
    words = (*(overrides or ()), f"networks={network}")
    ends = comparing.Wish(sides[listed[0]], sides[listed[-1]], suite, words, interpreters)
    planned = comparing.prepare(ends, allow_dirty)
    bisecting.refuse_several(planned.suite, [trial for trial in planned.trials if trial.side == "A"])
    steps: list[Step] = []

    def measure(release: str, attempt: int, cut: float) -> "Step":
        more = bisecting.more_processes(planned.suite, attempt)
        wish = replace(ends, b=sides[release], overrides=(*words, *(f"{key}={value}" for key, value in more.items())))
        place = folder / f"{release}-{more['processes']}"
        _live(wish, place, (place / "campaign.json").exists(), allow_dirty, _again(folder))
        found = comparing.judge(place, None)
        _show(found, place)
        steps.append(bisecting.step_of(release, found.rows, cut))
        bisecting.write(steps, folder / "bisect.csv")
        return steps[-1]

    answer = bisecting.search(listed, share, measure)
    _say(bisecting.tell(answer))
    _say(f"Every comparison: {folder / 'bisect.csv'}")
    if not answer.first:
        raise typer.Exit(1)


def _live(wish: "Wish", folder: Path, resume: bool, allow_dirty: bool, again: str) -> None:
    """Run a live comparison's campaign, with what a person sees of it; `again` is the command that goes on with a stopped one."""
    from harness.campaign import campaign as campaigns
    from harness.campaign import comparison as comparing
    from harness.cli.progress import Display
    from harness.plan.planner import execution_order

    prepared = comparing.prepare(wish, allow_dirty)
    work = execution_order(prepared.trials, prepared.suite.processes, prepared.suite.seed)
    _say(f"A: {wish.a}, B: {wish.b}: {len(prepared.trials)} trials, {len(work)} processes, records in {folder}")
    try:
        with Display(console, prepared.suite, work) as display:
            campaigns.run(prepared, folder, resume, display.watch, display.note, display.done)
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
    from harness.campaign import comparison as comparing

    console.print(report.terminal_table(found))
    for line in report.lines(found):
        _say(line)
    _say(f"Page: {comparing.publish(found, out)}")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
