"""What a person sees while a campaign runs: a bar with the time left and a line with the process at work; plain lines in a log."""

import math
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from harness.campaign.events import Event, Listener, Outcome
from harness.plan.planner import Trial, estimate_seconds
from harness.plan.suite import Suite


class Display(Listener):
    """Shows a campaign's progress; a context manager around it."""

    def __init__(self, console: Console, suite: Suite, work: list[tuple[Trial, int]]):
        self.console = console
        self.suite = suite
        self.left = {(trial.trial, process): estimate_seconds(trial, suite) for trial, process in work}
        self.typical = sum(self.left.values()) / max(len(self.left), 1)  # a guess for processes of further rounds
        self.further = 0
        self.guessed = 0.0
        self.spent = 0.0
        self.began = time.monotonic()
        self.progress = Progress(
            TextColumn("[bold]{task.completed:>3.0f}/{task.total:.0f}"), BarColumn(bar_width=24), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), TextColumn("[dim]{task.fields[now]}"), console=console, transient=True,
            disable=not console.is_terminal,
        )
        self.task: TaskID = self.progress.add_task("processes", total=len(work), left=self._left(), now="preparing")

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        """Say something that is worth keeping on the screen, such as an environment being built."""
        self.progress.console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def watch(self, event: Event) -> None:
        """Show what the process at work does. Checks made ahead are no process's own time."""
        if event.phase == "checked":
            self.began = time.monotonic()
        self.progress.update(self.task, now=describe(event, self.suite.windows))

    def done(self, outcome: Outcome, number: int, total: int) -> None:
        """Count a finished process and learn from how long it took; in a log, print its line."""
        key = (outcome.row["trial"], outcome.row["process"])
        now = time.monotonic()
        self.guessed += self.left.pop(key, self.typical)
        self.further = max(0, total - number - len(self.left))
        self.spent += now - self.began
        self.began = now
        self.progress.update(self.task, advance=1, total=total, left=self._left())
        if outcome.row["status"] != "ok":
            self.progress.console.print(f"{key[0]} process {key[1]}: {outcome.row['status']}: {outcome.row['reason']}",
                                        style="yellow", markup=False, highlight=False, soft_wrap=True)
        elif not self.console.is_terminal:
            step = outcome.windows[-1]["step_seconds"]
            self.console.print(f"{number}/{total} {key[0]} process {key[1]}: {duration(step)} a step, {self._left()}",
                               highlight=False, soft_wrap=True)

    def _left(self) -> str:
        """The guessed time of what is left, scaled by how wrong the guesses have been so far."""
        if not self.left and not self.further:
            return "none left"
        pace = self.spent / self.guessed if self.guessed else 1.0
        more = " and more where intervals are wide" if self.suite.interval and self.left else ""
        return f"about {duration(pace * (sum(self.left.values()) + self.further * self.typical))} left{more}"


def describe(event: Event, windows: int) -> str:
    """One line on the process at work: what runs, how far it is, its loss and step time."""
    trial = event.trial
    what = f"{trial.network} b{trial.batch}" + (f" x{trial.devices} {trial.strategy}" if trial.devices > 1 else "")
    text = f"{trial.framework} {what} {trial.precision} {trial.tuning} #{event.process} {event.phase}"
    if event.phase == "timing":
        text += f" {event.window}/{windows}"
    if math.isfinite(event.step_seconds):
        text += f" · {duration(event.step_seconds)} a step · loss {event.loss:.4g}"
    return text


def count(number: int, noun: str, plural: str = "s") -> str:
    """As in 1 trial, 2 trials."""
    return f"{number} {noun}{plural if number != 1 else ''}"


def duration(seconds: float) -> str:
    """Seconds in the unit a person would use, three significant digits below a minute."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
