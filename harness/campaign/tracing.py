"""Traces each trial on CUDA devices: one more worker runs a few steps and records the GPU's work.

The worker is not timed, because recording costs time. If it fails, the trial keeps its results and
the reason is recorded. Its trace (runners/tracer.py) becomes rows of kernels.csv.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.traces import kernels
from analysis.traces.exposure import exposed
from harness.campaign.events import Event
from harness.campaign.session import Session
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.answers import Asked, Recorded, Traced
from harness.workers.files import AnswerFolder
from harness.workers.launch import variables
from harness.workers.reading import read
from harness.workers.scratch import make_large_folder
from harness.workers.worker import Failed, Unsupported

WARM_UP_STEPS = 16  # enough to compile, choose algorithms and fill the allocator's pools
STEPS = 10
OUT, CALLS, MOST_BYTES = "trace.json", "calls.npz", 2**30


@dataclass(frozen=True)
class Pass:
    """A command that records steps, the variables it needs, and how its file becomes rows."""

    command: str
    model: type[Recorded]
    variables: Mapping[str, str]
    rows_of: Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]


def wanted(suite: Suite, trial: Trial) -> bool:
    return suite.trace and trial.device_kind == "cuda"


class Recording:
    """One more worker of a trial: it gets ready, maybe beside others, and then records alone.

    What happens to it becomes the reason of the trial's only row. `table` names its records.
    """

    def __init__(self, session: Session, trial: Trial, asked: Pass, table: str):
        self.session = session
        self.trial = trial
        self.asked = asked
        self.table = table
        self.reason = ""
        self.held = contextlib.ExitStack()  # the worker and its folder

    def get_ready(self) -> "Recording":
        """Start the worker, build and feed its network, and warm it up."""
        session, trial, asked = self.session, self.trial, self.asked
        if self.reason:
            return self
        session.listener.watch(Event(trial, 0, "tracing"))
        log = session.logs / f"{trial.trial}-{asked.command}.log"
        log.unlink(missing_ok=True)
        with self._noting_failures():
            large = self.held.enter_context(make_large_folder())
            self.folder = self.held.enter_context(AnswerFolder(Path(large)))
            self.worker = self.held.enter_context(session.start(trial, log, extra=asked.variables))
            self.held.enter_context(session.live.holding(self.worker))
            session.greet(self.worker, trial)
            session.build(self.worker, trial)
            session.feed(self.worker, trial)
            self._warm_up()
        return self

    def _warm_up(self) -> None:
        limit = self.session.suite.limits.window
        if self.trial.mode == "training":
            self.worker.ask("run", limit, steps=WARM_UP_STEPS)
        else:
            self.worker.ask("infer", limit, calls=WARM_UP_STEPS, out=str(self.folder.path(CALLS)))

    def rows(self) -> list[dict[str, Any]]:
        """Record a few steps and end the worker; return rows, or one with the reason."""
        found = {}
        with self.held, self._noting_failures():
            if not self.reason:
                command = Asked(self.asked.command, {"steps": STEPS}, time.monotonic())
                self.worker.ask(self.asked.command, self.session.suite.limits.window, steps=STEPS,
                                out=str(self.folder.path(OUT)))
                with self.folder.open(OUT, MOST_BYTES) as file:
                    found = read(self.asked.model, file.read(), command)
        if self.reason:
            return [{"trial": self.trial.trial, "class": kernels.NO_TRACE, "reason": self.reason}]
        return self.asked.rows_of(self.trial.trial, found)

    def again(self) -> list[dict[str, Any]]:
        """Record with another worker."""
        self.reason = ""
        return self.get_ready().rows()

    @contextlib.contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except (Unsupported, Failed) as why:
            self.reason = str(why)
            self.held.close()
        except BaseException:
            self.held.close()
            raise


def trace(session: Session, trial: Trial) -> Recording:
    """Return what traces a trial into rows of kernels.csv."""
    extra = visible_copies(session.environment(trial), trial)
    return Recording(session, trial, Pass("trace", Traced, extra, rows_of), "kernels")


def rows_of(trial: str, traced: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turn a trace into rows: kernels, copies, and last the busy and idle time, which end it."""
    steps = traced["steps"]
    same = {"trial": trial, "steps": steps}
    rows: list[dict[str, Any]] = []
    for kernel in traced["kernels"]:
        kind = kernels.classify(kernel["name"])
        rows.append({**same, "class": kind.name, "arithmetic": kind.arithmetic,
                     "transposition": kind.transposition, "kernel": kernels.shorten(kernel["name"]),
                     **_per_step(kernel, steps, "count", "seconds")})
    for copy in traced["copies"]:
        kind_name = kernels.MEMSET if copy["kind"] == "memset" else kernels.COPY
        rows.append({**same, "class": kind_name, "kernel": copy["kind"],
                     **_per_step(copy, steps, "count", "seconds", "bytes")})
    for row, seconds in zip(rows, _exposed(rows, traced["timeline"]), strict=True):
        row["exposed_seconds_per_step"] = seconds / steps
    times = {kernels.WALL: traced["wall_seconds"], kernels.BUSY: traced["busy_seconds"],
             kernels.IDLE: traced["span_seconds"] - traced["busy_seconds"]}
    return rows + [{**same, "class": name, "seconds_per_step": seconds / steps}
                   for name, seconds in times.items()]


def visible_copies(environment: Environment | BuildFailed, trial: Trial) -> dict[str, str]:
    """Return variables that keep XLA's flags and switch its command buffers off.

    In command buffers the driver copies by kernels of its own (memcpy128 on an H200), whose bytes
    are not recorded.
    """
    own = {} if isinstance(environment, BuildFailed) else variables(environment, trial)
    given = {**os.environ, **own}.get("XLA_FLAGS", "")
    return {"XLA_FLAGS": f"{given} --xla_gpu_enable_command_buffer=".strip()}


def _exposed(rows: Sequence[Mapping[str, Any]], timeline: Sequence[Sequence[int]]) -> Any:
    """Return the seconds of each row that nothing hid.

    Computing hides collectives and copies, collectives hide copies.
    """
    owners, starts, ends = np.array(timeline, float).reshape(-1, 3).T  # nanoseconds
    owners = owners.astype(int)
    ranks = np.array([kernels.HIDDEN.get(row["class"], 0) for row in rows], int)
    return np.bincount(owners, exposed(starts, ends, ranks[owners]), minlength=len(rows)) * 1e-9


def _per_step(activity: Mapping[str, Any], steps: int, *keys: str) -> dict[str, float]:
    """Divide counts, seconds and bytes by the steps; what divides evenly stays a whole number."""
    found = {}
    for key in keys:
        whole = isinstance(activity[key], int) and activity[key] % steps == 0
        found[f"{key}_per_step"] = activity[key] // steps if whole else activity[key] / steps
    return found
