"""What a campaign tells while it runs, and to whom."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.plan.planner import Trial

# How the reason of a failure says that memory ran short. NCCL does not say which call to CUDA
# failed. It was seen once, on GPUs that other processes filled, so the process runs again alone.
SHORTAGES = ("out_of_memory", "NCCL: unhandled cuda error")


def ran_short(row: Mapping[str, Any]) -> bool:
    """Return whether the reason of a row says that memory ran short."""
    return any(sign in str(row.get("reason")) for sign in SHORTAGES)


@dataclass(frozen=True)
class Event:
    """What a process of a trial does now; after a window also its step time and loss."""

    trial: Trial
    process: int
    # checked (before all processes), checking, starting, building, warm-up, timing,
    # parts of the step, epoch n, answering the test part, tracing
    phase: str
    window: int = 0  # how many timed windows are done
    # The median of the timed windows so far; in warm-up, of the last window.
    step_seconds: float = math.nan
    loss: float = math.nan
    step: int = 0  # the last step of the window that has just ended
    samples: Sequence[dict[str, Any]] = ()  # the newest readings of the telemetry


@dataclass
class Outcome:
    """A finished process: its row of processes.csv and its rows of the other tables.

    The recorder adds the trial and the number of the process to each row.
    """

    row: dict[str, Any]
    windows: list[dict[str, Any]] = field(default_factory=list)
    counters: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)
    latencies: list[dict[str, Any]] = field(default_factory=list)
    server: list[dict[str, Any]] = field(default_factory=list)
    scenarios: list[dict[str, Any]] = field(default_factory=list)
    accuracy: list[dict[str, Any]] = field(default_factory=list)
    loading: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def shortage(self) -> dict[str, Any] | None:
        """The row that seems short of memory: the process's own, or one of a part of its step."""
        return next(filter(ran_short, (self.row, *self.phases, *self.loading)), None)


class Listener:
    """Is told of a campaign's progress. This one ignores everything; subclasses show it."""

    def watch(self, event: Event) -> None:
        """Take what a process does now."""

    def note(self, text: str) -> None:
        """Take a line about an environment being built, a peak, or a shortage of memory."""

    def done(self, outcome: Outcome, number: int, total: int) -> None:
        """Take a finished process: the `number`-th of the `total` known so far."""

    def end(self) -> None:
        """Learn that the records are complete. Their folder is hashed next."""
