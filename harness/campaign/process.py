"""One process of one trial: start its worker, prove it, warm it up, time its windows, prove again.

The first steps run one by one, so that frameworks can be compared loss by loss. Then windows double
until one is long enough. All windows are kept; those before the timed ones have negative numbers.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from statistics import median
from typing import Any

import numpy as np

import networks
from harness.campaign.events import Event, Outcome
from harness.campaign.session import Session
from harness.plan.planner import Trial
from harness.proof import copies
from harness.proof.case import Begin
from harness.proof.questions import OF_REFERENCE
from harness.telemetry.sampler import kept
from harness.workers import step_parts
from harness.workers.worker import Failed, Unsupported, Worker

SINGLE_STEPS = 8
NOTED = 10  # steps in which the stages of a pipeline are watched
NEWEST = 400  # samples: a few seconds of all sources
UNREACHED = ("where GPUs do not reach one another directly (IOMMU, ACS), NCCL_P2P_DISABLE=1 sends "
             "through the host's memory")
LONGEST_WINDOW = 2**20  # steps; below a microsecond a step, the runner does not synchronize


class Process:
    """A process of a trial. What happens to its worker becomes the outcome's status and reason."""

    def __init__(self, session: Session, trial: Trial, number: int, order: int):
        self.session = session
        self.trial = trial
        self.number = number
        self.order = order
        self.worker: Worker | None = None  # once it is ready
        self.built: dict[str, Any] = {}  # what the worker said of its network
        self.draw = 0  # with which its next proof begins
        self.outcome = Outcome({"trial": trial.trial, "process": number, "order": order,
                                "status": "ok", "reason": "", "started": now()})

    @property
    def network(self) -> networks.Network:
        return networks.get(self.trial.network)

    def get_ready(self) -> "Process":
        """Start a worker, let it build its network, prove it, and feed it."""
        session, trial, row = self.session, self.trial, self.outcome.row
        log = session.logs / f"{trial.trial}-{self.number}.log"
        log.unlink(missing_ok=True)
        with self._noting_failures(), self._counting():
            self._tell("starting")
            row["log"] = f"{session.logs.name}/{log.name}"
            worker = self._pooled() or session.start(trial, log)
            row["log"] = f"{session.logs.name}/{worker.log.name}"
            session.live.add(worker)
            try:
                hello = session.greet(worker, trial)
                row.update({key: hello.get(key, "") for key in ("release", "device_name")})
                self._tell("building")
                began = time.monotonic()
                built = self.built = session.build(worker, trial)
                row.update(parameters=int(built["parameters"]), settings=settings_of(built),
                           build_seconds=time.monotonic() - began)
                self._prove(worker)
                self._feed(worker)
            except BaseException:
                worker.end()
                session.live.discard([worker])
                raise
            self.worker = worker
        return self

    def _feed(self, worker: Worker) -> None:
        """Let the worker take its weights and batches."""
        self.session.feed(worker, self.trial)

    def rehearse(self) -> Outcome:
        """Run the first steps of a new process and end its worker. Nothing is kept but its log."""
        self.get_ready()
        if self.worker:
            with self._noting_failures():
                self._first_steps(self.worker)
            self.worker.finish()
            self.session.live.discard([self.worker])
        return self.outcome

    def measure(self) -> Outcome:
        """Time a process that is ready. Its worker lives on unless it failed."""
        outcome, sampler = self.outcome, self.session.sampler
        if self.worker:
            local = self.trial.devices // self.trial.nodes
            gpus = local if self.trial.device_kind == "cuda" else 0
            with self._noting_failures(), self._counting(), \
                    sampler.recording(gpus, self.trial.nodes):
                self._time(self.worker)
            if outcome.row["status"] != "ok":
                self.worker.end()
            elif outcome.row.get("check") == "same":
                self._keep_for_peers()
        _number(outcome.windows)
        outcome.counters = kept(sampler.samples, outcome.windows)
        return outcome

    def _keep_for_peers(self) -> None:
        """Keep the losses of a process that was proved, for the rows that should agree with it."""
        self.session.peers.add(self.trial, *losses_of(self.outcome))

    def _time(self, worker: Worker) -> None:
        suite = self.session.suite
        last = self._first_steps(worker)
        length = 1
        while last < suite.window_seconds or length < suite.window_steps:
            length = 2 * length if last < suite.window_seconds else suite.window_steps
            if length > LONGEST_WINDOW:
                raise Failed("protocol", f"{LONGEST_WINDOW} steps in {last:.3g} s: the runner does "
                                         "not wait for its device")
            last = self._window(worker, length, "warm-up")
        for _ in range(suite.windows):
            self._window(worker, length, "timing")
        # Before the proof, which holds more. A kept worker's pools hold what earlier trials took.
        held = None if suite.keep_workers else self.session.sampler.held_by(worker.processes)
        self.outcome.row.update(window_steps=length, device_memory_bytes=held)
        if self.trial.strategy.startswith("pipeline"):
            answer = worker.ask("stages", suite.limits.window, steps=NOTED)
            self.outcome.row["stage_idle_shares"] = idle_shares(answer["stage_seconds"])
        if self.trial.devices > 1:
            self._compare_copies(worker)
        if further := further_steps(self.number):
            self._run(worker, further)
        self._prove(worker, after=True)
        if suite.phases:
            self.session.feed(worker, self.trial)
            self._tell("parts of the step")
            self.outcome.phases = step_parts.measure(worker, suite, self.trial, length)

    def _first_steps(self, worker: Worker) -> float:
        """Run the first steps one by one; return the seconds of the last."""
        return [self._window(worker, 1, "warm-up") for _ in range(SINGLE_STEPS)][-1]

    def _window(self, worker: Worker, steps: int, phase: str) -> float:
        """Run and keep one window; return its seconds. Raises Failed if the loss is not finite."""
        outcome = self.outcome
        with self.session.sampler.around_window(phase == "timing"):
            answer = self._run(worker, steps)
        seconds = float(answer["stop"] - answer["start"])
        done = outcome.windows[-1]["last_step"] if outcome.windows else 0
        window = {"phase": phase, "steps": answer["steps"], "last_step": done + answer["steps"],
                  "start": answer["start"], "stop": answer["stop"], "seconds": seconds,
                  "step_seconds": seconds / answer["steps"], "loss": answer["loss"]}
        if answer.get("network_tx_bytes") is not None:
            window["network_tx_bytes"] = answer["network_tx_bytes"]
        outcome.windows.append(window)
        outcome.row["peak_memory_bytes"] = answer["peak_memory_bytes"]
        timed = [each["step_seconds"] for each in outcome.windows if each["phase"] == "timing"]
        step_seconds = median(timed) if timed else window["step_seconds"]
        samples = self.session.sampler.samples[-NEWEST:]
        self._tell(phase, len(timed), step_seconds, answer["loss"], window["last_step"], samples)
        self._refuse_diverged()
        return seconds

    def _run(self, worker: Worker, steps: int) -> dict[str, Any]:
        """Let the worker run steps; return its answer."""
        return worker.ask("run", self.session.suite.limits.window, steps=steps)

    def _refuse_diverged(self) -> None:
        """Raise Failed if the last window's loss is not finite or strays from those of peers."""
        window = self.outcome.windows[-1]
        if not math.isfinite(window["loss"]):
            raise Failed("diverged", f"the loss is {window['loss']} after step "
                                     f"{window['last_step']}")
        if strayed := self.session.peers.stray(self.trial, *losses_of(self.outcome)):
            raise Failed("diverged", strayed)

    def _compare_copies(self, worker: Worker) -> None:
        """Note how far the devices' copies differ; raise Failed if it is more than rounding."""
        row = self.outcome.row
        found = copies.compare(worker, self.network, self.trial.strategy, self.trial.devices,
                               self.session.suite.limits.window)
        # The check may have seen a larger difference.
        row["copies_error"] = float(np.fmax(row.get("copies_error", math.nan), found.error))
        if found.fault:
            raise Failed("different", found.fault)

    def _pooled(self) -> Worker | None:
        """Take a worker from the pool. One that died or hung there ends and costs no trial."""
        while worker := self.session.pool.take(self.trial):
            try:
                self.session.greet(worker, self.trial)
                return worker
            except Failed:
                worker.end()
                self.session.live.discard([worker])
        return None

    def _prove(self, worker: Worker, after: bool = False) -> None:
        """Prove the step that is timed; keep the verdict and the larger errors of both times.

        A network that is different is timed too; its row is not ranked.
        """
        self._tell("proving")
        row, began = self.outcome.row, time.monotonic()
        begin = Begin(self.draw, 2 * self.number + after, turned=after and self.number % 2 == 1)
        verdict = self.session.prove(worker, self.trial, int(row["parameters"]), begin)
        self.draw = verdict.draw
        # What compiles in the first steps belongs to building.
        elapsed = time.monotonic() - began
        first = 0.0 if after else min(verdict.first_seconds, elapsed)
        row["build_seconds"] += first
        self._note_proof(elapsed - first, after)
        if row.get("check") != "different":
            when = "after the timed windows: " if after and verdict.reason else ""
            row.update(check=verdict.verdict, check_reason=when + verdict.reason)
        strength = verdict.strength
        for column, value in (
                ("loss_error", verdict.loss_error), ("gradient_error", verdict.gradient_error),
                ("trajectory_error", verdict.trajectory_error),
                ("copies_error", verdict.copies_error), ("proof_rate_error", strength.rate),
                ("proof_frozen_share", strength.frozen),
                ("proof_gradient_error", strength.gradient),
                ("proof_limit_share", verdict.limit_share)):
            row[column] = float(np.fmax(row.get(column, math.nan), value))

    def _note_proof(self, seconds: float, after: bool) -> None:
        row = self.outcome.row
        row["proof_seconds"] = row.get("proof_seconds", 0.0) + seconds
        if after:
            row["second_proof_seconds"] = seconds

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Add up how long the process takes, without its wait for its turn to be timed."""
        row, began = self.outcome.row, time.monotonic()
        try:
            yield
        finally:
            row["process_seconds"] = row.get("process_seconds", 0.0) + time.monotonic() - began

    @contextlib.contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """Note what a worker refuses or fails at; add a remedy if GPUs seem unable to connect."""
        row, trial = self.outcome.row, self.trial
        try:
            yield
        except Unsupported as refusal:
            row.update(status="unsupported", reason=str(refusal))
        except Failed as failure:
            greeted_only = row.get("device_name") and not self.outcome.windows
            hung = failure.kind == "timed_out" and not failure.reason.startswith(OF_REFERENCE)
            apart = hung and greeted_only and trial.device_kind == "cuda" and trial.devices > 1
            row.update(status="failed", reason=f"{failure}; {UNREACHED}" if apart else str(failure))

    def _tell(self, phase: str, *window: Any) -> None:
        self.session.listener.watch(Event(self.trial, self.number, phase, *window))


def further_steps(number: int) -> int:
    """Return how many steps a process runs, untimed, before its last proof: 0, 1, 3, 4, 6 ...

    Without them a fault of every n-th step meets the same play in each process, or none. Each
    second process turns the ring too, so plays begin at odd and even steps, and on each batch.
    """
    return 3 * number // 2


def now() -> str:
    """The time for a record."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def settings_of(built: Mapping[str, Any]) -> str:
    """Write what a runner's tier sets as one text; "" of a runner that does not say."""
    return "; ".join(" ".join(str(each).split()) for each in built.get("settings") or ())


def idle_shares(ranks: Sequence[tuple[float, float]]) -> str:
    """Return the share of a step's pipeline in which each rank waits, from its work and span.

    The first stage begins a step and ends it, so its span, the longest, is the pipeline's.
    """
    whole = max(span for _, span in ranks)
    return " ".join(f"{1 - busy / whole:.4f}" for busy, _ in ranks)


def losses_of(outcome: Outcome) -> tuple[list[int], list[float]]:
    """Return the last step and the loss of each window of a process."""
    return ([int(window["last_step"]) for window in outcome.windows],
            [float(window["loss"]) for window in outcome.windows])


def _number(windows: list[dict[str, Any]]) -> None:
    """Number timed windows 0, 1, ... and those before them -n ... -1."""
    before = sum(window.pop("phase") == "warm-up" for window in windows)
    for position, window in enumerate(windows):
        window["window"] = position - before
