"""What a person sees of a running campaign: a bar, lines in a log, a live page."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from harness.campaign.events import Event, Listener, Outcome
from harness.cli.options import folder_of
from harness.cli.terminal import dim, say
from harness.errors import WrongUse, install
from harness.plan.planner import Trial, estimate_seconds
from harness.plan.suite import Suite

MISSING = f"the live page needs Starlette and uvicorn: {install('live')}"
NICE = 10
# So long the server stays, so that the page hears of the end.
LAST_SECONDS = 2.0


class Display(Listener):
    """Shows a campaign's progress; a context manager around it."""

    def __init__(self, console: Console, suite: Suite, work: list[tuple[Trial, int]]):
        self.console = console
        self.suite = suite
        # The estimated seconds of each process, and of a process of a further round.
        self.left = {(trial.trial, process): estimate_seconds(trial, suite)
                     for trial, process in work}
        self.typical = sum(self.left.values()) / max(len(self.left), 1)
        self.further = 0
        self.estimated = 0.0
        self.spent = 0.0
        self.finished = 0
        self.began = time.monotonic()
        self.progress = Progress(
            TextColumn("[bold]{task.completed:>3.0f}/{task.total:.0f}"), BarColumn(bar_width=24),
            TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
            TextColumn("[dim]{task.fields[now]}"), console=console, transient=True,
            disable=not console.is_terminal)
        self.task: TaskID = self.progress.add_task("processes", total=len(work),
                                                   left=self._left(), now="preparing")

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        """Print a line that stays, such as an environment being built."""
        self._print(text, "dim")

    def watch(self, event: Event) -> None:
        """Show what the current process does. What comes before the first one counts for none."""
        if event.phase == "starting" and not self.finished:
            self.began = time.monotonic()
        self.progress.update(self.task, now=describe(event, self.suite.windows))

    def done(self, outcome: Outcome, number: int, total: int) -> None:
        """Count a finished process, learn from its duration, and print its line."""
        row = outcome.row
        now = time.monotonic()
        estimated = self.left.pop((row["trial"], row["process"]), self.typical)
        # While the first one got ready others did, which are timed soon after it.
        if self.finished or self.suite.prepare_jobs == 1:
            self.estimated += estimated
            self.spent += now - self.began
        self.finished += 1
        self.further = max(0, total - number - len(self.left))
        self.began = now
        self.progress.update(self.task, advance=1, total=total, left=self._left())
        process = f"{row['trial']} process {row['process']}"
        if row["status"] != "ok":
            self._print(f"{process}: {row['status']}: {row['reason']}", "yellow")
        else:
            # The report says the median over windows too.
            step = median(window["step_seconds"] for window in outcome.windows
                          if window["window"] >= 0)
            self._print(f"{number}/{total} {process}: {duration(step)} a step, {self._left()}")

    def _print(self, text: str, style: str | None = None) -> None:
        self.progress.console.print(text, style=style, markup=False, highlight=False,
                                    soft_wrap=True)

    def _left(self) -> str:
        """Estimate the time left, scaled by how far the estimates were off so far."""
        if not self.left and not self.further:
            return "none left"
        pace = self.spent / self.estimated if self.estimated else 1.0
        seconds = pace * (sum(self.left.values()) + self.further * self.typical)
        more = " and more where intervals are wide" if self.suite.interval and self.left else ""
        return f"about {duration(seconds)} left{more}"


def describe(event: Event, windows: int) -> str:
    """Describe a process in one line: what runs, how far it is, its step time and loss."""
    trial = event.trial
    several = f" x{trial.devices} {trial.strategy}" if trial.devices > 1 else ""
    text = (f"{trial.framework} {trial.network} b{trial.batch}{several} {trial.precision} "
            f"{trial.tuning} #{event.process} {event.phase}")
    if event.phase == "timing":
        text += f" {event.window}/{windows}"
    if math.isfinite(event.step_seconds):
        text += f" · {duration(event.step_seconds)} a step"
        text += f" · loss {event.loss:.4g}" if trial.mode == "training" else ""
    return text


def count(number: int, noun: str, plural: str = "s") -> str:
    """Count as in 1 trial, 2 trials."""
    return f"{number} {noun}{plural if number != 1 else ''}"


def duration(seconds: float) -> str:
    """Write seconds in a unit that fits, with three significant digits below a minute."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def live(
    folder: Annotated[Path, typer.Argument(
        metavar="DIR", parser=folder_of, help="A campaign, running or finished.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 0,
) -> None:
    """Serve a page on 127.0.0.1 that shows a campaign as it runs. Ctrl-C ends it."""
    try:
        from harness.live import server
    except ImportError:
        raise WrongUse(MISSING) from None
    from analysis.display import palette

    if not (folder / "campaign.json").is_file() and not folder.is_dir():
        raise WrongUse(f"{folder}: no such campaign; name the folder that dlbench run writes")
    if not (folder / "campaign.json").is_file():
        print(f"{folder}: holds no campaign yet; the page waits for one", file=sys.stderr)
    colours = {name: colour for name, (colour, _) in palette.FRAMEWORKS.items()}
    try:
        server.serve(folder, {"colours": colours}, port, say)
    except OSError as error:
        raise WrongUse(f"--port {port}: {error.strerror}; name another one") from None


@contextmanager
def page_beside(folder: Path, wanted: bool) -> Iterator[None]:
    """Serve the live page of the campaign in `folder` from a process of its own, if `wanted`.

    Raises WrongUse if it cannot be served.
    """
    if not wanted:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", "from harness.start import main; main()", "live", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as server:
        os.setpriority(os.PRIO_PROCESS, server.pid, NICE)
        try:
            address = server.stdout.readline().strip() if server.stdout else ""
            if not address.startswith("http"):
                raise WrongUse("--live: the page's server did not start")
            say(f"Live page: {address}")
            yield
            time.sleep(LAST_SECONDS)
            dim(f"The live page has ended; dlbench live {folder} shows it again")
        finally:
            server.terminate()
            # Left empty by a campaign that did not begin.
            with suppress(OSError):
                folder.rmdir()
