"""Judges sameness: what a worker's timed step does, against the NumPy float64 reference.

The worker makes the plays of `harness.proof.plays`. The judge compares its number of parameters,
its loss and what its parameters and running statistics moved. docs/method/sameness.md explains how.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import networks
from analysis.strategies import table as strategies
from harness.proof import calibrated, copies, dropout, lossy, moves, plays
from harness.proof.case import FIRST, Begin, Case
from harness.proof.limits import LimitsOf
from harness.proof.plays import Plays
from harness.proof.questions import (
    CALIBRATED,
    PLAIN,
    SMOOTH,
    Question,
    Questions,
    head_of,
    samples_of,
)
from harness.proof.verdict import Findings, Strength, Verdict
from harness.workers.alive import LiveWorkers
from harness.workers.worker import Failed, Unsupported, Worker

# Draws begin so many steps apart, or a multiple: a fault of every 2nd, 3rd, 4th or 6th step comes
# at the same plays of each draw, so no other draw clears it.
APART = 12
DRAWS = 3  # of weights and samples, before gradients that rounding could explain are different


class Judge:
    """Proves workers; keeps the reference's answers in `folder`."""

    def __init__(self, folder: Path, samples: int, steps: int, seed: int, limit: float):
        self.live = LiveWorkers()
        self.questions = Questions(folder, seed, limit, self.live)
        self.limits = LimitsOf(self.questions)
        self.samples = samples
        self.steps = steps
        self.limit = limit

    def judge(self, worker: Worker, network: networks.Network, task: Mapping[str, Any],
              batch: int = 0, between: int = 0, turned: bool = False) -> Verdict:
        """Let `worker` build `network` under `task` at `batch` (0: twice the samples); prove it.

        With `between`, it is proved again after as many further steps, as `turned` says.
        """
        batch = batch or 2 * self.samples
        try:
            built = worker.ask("build", self.limit, network=network.to_json(), batch=batch,
                               dropout=True, **task)
            verdict = self.prove(worker, network, task, batch, built["parameters"])
            if between and verdict.verdict == "same":
                worker.ask("run", self.limit, steps=between)
                verdict = self.prove(worker, network, task, batch, built["parameters"],
                                     begin=Begin(verdict.draw, 1, turned))
        except Unsupported as refusal:
            return Verdict("unsupported", str(refusal))
        except Failed as failure:
            return Verdict("different", str(failure), failure=failure.kind)
        return verdict

    def prepare(self, network: networks.Network, batch: int, devices: int,
                precision: str) -> None:
        """Ask the reference for all that a first draw of `prove` needs. Raises Failed."""
        question = self._question(network, batch, devices, 0)
        for kind in question.kinds:
            self.questions.answer(question, kind)
            self.limits.of(question, kind, precision)
        if network.has_dropout:
            self.questions.masks(question)
            self.questions.masked_head(question)
        if head_of(network):
            self.questions.answer(question, CALIBRATED)

    def prove(self, worker: Worker, network: networks.Network, task: Mapping[str, Any],
              batch: int, parameters: int, residence: str = "device",
              begin: Begin = FIRST) -> Verdict:
        """Prove a worker that has built `network` at `batch`. Raises Failed and Unsupported.

        Gradients may miss their limits because rounding turned ReLUs or maxima. New weights and
        samples show it, because a fault shows on every draw. A process that is proved again begins
        with the draw that its first proof ended with: it turns the same ReLUs.
        """
        trained = 0
        for number in range(DRAWS):
            if further := -trained % APART:
                worker.ask("run", self.limit, steps=further)
            draw = (begin.draw + number) % DRAWS
            question = self._question(network, batch, task["devices"], draw)
            case = Case(question, self.questions, self.limits, task, batch, begin)
            findings = Findings()
            if parameters != network.parameter_count:
                findings.exact_faults.append(
                    f"{parameters:,} parameters for {network.parameter_count:,}")
            strength = self._compare(case, worker, residence, findings)
            trained = findings.trained
            if findings.exact_faults or not findings.faults:
                break
        return replace(findings.verdict(parameters, strength), draw=draw)

    def _compare(self, case: Case, worker: Worker, residence: str, findings: Findings) -> Strength:
        """Let the worker make its plays, and compare them; return what this could see."""
        try:
            with plays.played(worker, case, residence, self.steps, self.limit) as found:
                _compare_plays(case, found, findings)
        except plays.Misfit as misfit:
            findings.exact_faults.append(misfit.reason)
            return Strength()
        if case.question.devices > 1:
            apart = copies.compare(worker, case.network, case.strategy,
                                    case.question.devices, self.limit)
            findings.exact_faults += [apart.fault] if apart.fault else []
            findings.copies_error = apart.error
        if strategies.of(case.strategy).later and not findings.exact_faults and not findings.faults:
            lossy.compare_later_moves(case, worker, residence, self.limit, findings)
        return findings.strength(case.sizes)

    def _question(self, network: networks.Network, batch: int, devices: int,
                  draw: int) -> Question:
        return self.questions.question(network, samples_of(batch, self.samples), devices, draw)


def _compare_plays(case: Case, found: Plays, findings: Findings) -> None:
    findings.first_seconds, findings.trained = found.first_seconds, found.trained
    moves.compare_loss(case, found.plain, findings)
    calibrated.compare(case, found.calibrated, findings)
    if case.keeps_only_sums:
        lossy.compare_first_sum(case, found.plain, findings)
    else:
        moves.compare_gradients(case, PLAIN, found.plain, findings, found.again)
        if found.smooth:
            moves.compare_gradients(case, SMOOTH, found.smooth, findings)
        moves.compare_momentum(case, found, findings)
    moves.compare_running_statistics(case, found.plain, findings)
    if found.again:
        dropout.compare_masks(case, found, findings)
