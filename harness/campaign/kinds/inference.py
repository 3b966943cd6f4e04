"""One process of a trial in inference: the phases of `process`, with calls in place of steps.

Every call's time is kept. The outputs of each window's last call are compared with the reference
once all windows are timed, so that nothing else computes between them.
"""

import math
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import networks
from harness.campaign.process import Process
from harness.campaign.session import Session
from harness.inference import server
from harness.inference.calls import Calls
from harness.inference.judge import Verdict
from harness.inference.reference import Asked
from harness.plan.planner import Trial
from harness.workers.files import AnswerFolder
from harness.workers.worker import Unsupported, Worker

# Calls of one row of latencies.csv: readers take cells of a few thousand characters.
CALLS_A_ROW = 400


class InferenceProcess(Process):
    """A process that runs a trained network."""

    calls: Calls

    def measure(self) -> Any:
        """Time a process that is ready, and keep the time of every timed call."""
        outcome = super().measure()
        for window in outcome.windows:
            seconds = window.pop("calls")
            if window["window"] >= 0:
                outcome.latencies += _rows(window, (1e9 * seconds).round().astype(int).tolist())
        return outcome

    def _time(self, worker: Worker) -> None:
        """Time and prove; then let trained weights answer the test part of the trial's data."""
        super()._time(worker)
        inference, asked, row = self.session.inference, Asked.of(self.trial), self.outcome.row
        if not (tests := inference.reference.tests(asked)):
            return
        self._tell("answering the test part")
        answered = inference.answers(worker, asked, tests)
        row.update(answered.columns)
        self.outcome.answers = answered.rows
        if answered.fault and row.get("check") != "different":
            row.update(check="different",
                       check_reason=f"in answers to the test part: {answered.fault}")

    def _run(self, worker: Worker, steps: int) -> dict[str, Any]:
        session, trial = self.session, self.trial
        if not self.outcome.windows:
            self.calls = Calls(worker, session.inference.reference, Asked.of(trial),
                               timed_inputs(session, trial), session.suite.limits.window)
        with AnswerFolder(session.inference.reference.folder) as folder:
            answer, self.seconds = self.calls.run(steps, folder)
        return {**answer, "loss": math.nan}

    def _window(self, worker: Worker, steps: int, phase: str) -> float:
        seconds = super()._window(worker, steps, phase)
        self.outcome.windows[-1]["calls"] = self.seconds
        return seconds

    def _refuse_diverged(self) -> None:
        """Inference has no loss."""

    def _keep_for_peers(self) -> None:
        """Inference has no loss: each row has its own proof."""

    def _prove(self, worker: Worker, after: bool = False) -> None:
        if after and self.session.suite.scenarios:
            self._play()
        self._tell("proving")
        trial, began = self.trial, time.monotonic()
        if after:
            self._note(self.session.inference.compare(self.calls), "in timed calls: ")
        else:
            self._note(self.session.inference.prove(worker, Asked.of(trial), self.built,
                                                    self.session.residence(trial)))
        self._note_proof(time.monotonic() - began, after)

    def _play(self) -> None:
        """Let LoadGen ask in each of the suite's scenarios; keep why one cannot be played."""
        suite = self.session.suite
        self._tell("playing scenarios")
        missing = self.session.without_loadgen(self.trial)
        with AnswerFolder(self.session.inference.reference.folder) as folder:
            for scenario in suite.scenarios:
                try:
                    if missing:
                        raise Unsupported(missing)
                    row = self._play_one(scenario, folder)
                except Unsupported as refusal:
                    row = {"calls": 0, "valid": 0, "unmet": f"unsupported: {refusal}"}
                self.outcome.scenarios.append(
                    {"scenario": scenario, "batch": self.trial.batch, **row})

    def _play_one(self, scenario: str, folder: AnswerFolder) -> dict[str, Any]:
        """Play one scenario and return its row; keep the rates of a server."""
        suite, batch = self.session.suite, self.trial.batch
        rate, seconds = batch / self._call_seconds(), suite.windows * suite.window_seconds
        asked = {"scenario": scenario, "batch": batch, "seconds": seconds}
        if scenario != server.SCENARIO:
            return self.calls.play({**asked, "rate": rate}, folder)
        assert suite.latency_bound_seconds
        goal = server.Goal(suite.latency_bound_seconds, suite.latency_percentile, seconds,
                           suite.limits.window / 2)
        found = server.seek(lambda wanted: self.calls.serve({**asked, **wanted}, folder), goal,
                            rate, suite.seed + server.TRIES * self.number)
        self.outcome.server = found.tries
        return found.best

    def _call_seconds(self) -> float:
        """The median over timed windows."""
        return float(median(each["step_seconds"] for each in self.outcome.windows
                            if each["phase"] == "timing"))

    def _note(self, verdict: Verdict, when: str = "") -> None:
        """Keep the verdict, unless an earlier one was worse, and the largest error."""
        row = self.outcome.row
        if row.get("check") != "different":
            row.update(check=verdict.verdict,
                       check_reason=when + verdict.reason if verdict.reason else "")
        row["output_limit"] = verdict.output_limit
        row["output_error"] = max(row.get("output_error", 0.0), verdict.output_error)
        row["quantization_error"] = float(np.fmax(row.get("quantization_error", math.nan),
                                                  verdict.quantization_error))
        row["top1_agreement"] = float(np.fmin(row.get("top1_agreement", math.nan),
                                              verdict.top1_agreement))
        row.setdefault("first_call_seconds", verdict.first_call_seconds)
        row.setdefault("model_bytes", self.built.get("model_bytes") or math.nan)


def timed_inputs(session: Session, trial: Trial) -> Path:
    """Return the file of the batches on which a trial is timed."""
    return session.inputs.batches(networks.get(trial.network), trial.global_batch, trial.data)


def _rows(window: dict[str, Any], nanoseconds: list[int]) -> list[dict[str, Any]]:
    """Return the rows of latencies.csv for one window's calls."""
    return [{"window": window["window"], "first": first,
             "nanoseconds": " ".join(map(str, nanoseconds[first:first + CALLS_A_ROW]))}
            for first in range(0, len(nanoseconds), CALLS_A_ROW)]
