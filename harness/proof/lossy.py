"""Proves strategies of aggregation that lose a part of the gradients, by what they must keep."""

import math

import numpy as np

from analysis.proof.tolerances import LATER_STEPS
from analysis.strategies import table as strategies
from harness.proof import distances
from harness.proof.case import Case
from harness.proof.plays import Play, Trainer
from harness.proof.questions import PLAIN
from harness.proof.verdict import Findings, nan_last
from harness.workers.files import AnswerFolder
from harness.workers.worker import Worker

# For the sum of a first step of a strategy that may move every tensor as it likes; found 0.002.
FIRST_SUM = 0.05


def compare_first_sum(case: Case, found: Play, findings: Findings) -> None:
    """Compare the sum of a first step whose strategy keeps only sums.

    Two means in the place of a block keep its sum. The tensor whose gradient cancels least in its
    sum is compared; all must have moved.
    """
    _, answer = case.answer(PLAIN)
    start, network = case.start(PLAIN), case.network
    sums = {name: distances.sums_of(lambda gradient: (gradient, np.square(gradient)),
                                    answer[f"gradient/{name}"])
            for name in network.parameter_shapes}
    name = max(sums, key=lambda name: distances.quotient(abs(sums[name][0]),
                                                         math.sqrt(sums[name][1])))
    moved = {name: distances.sums_of(lambda start, ours: (start - ours, np.abs(start - ours)),
                                     start[name], found.parameters[0][name]) for name in sums}
    ratio = moved[name][0] / (network.learning_rate * sums[name][0])
    limit = max(FIRST_SUM, case.limit_of(name).coefficient)
    # The moves of the head's bias add up to zero.
    still = [name for name in sums if sums[name][1] and moved[name][1] == 0]
    if still:
        findings.faults.append(f"{len(still)} tensors did not move, first {still[0]}")
    findings.seen = {part: [limit] for part, whole, _ in case.parts if whole not in still}
    if not abs(ratio - 1) <= limit:
        reason = f"the first step adds up to {ratio:.3g} times the right one's sum in {name}"
        if abs(ratio / case.question.devices - 1) < FIRST_SUM:
            reason += f": the sum over {case.question.devices} devices instead of the mean"
        findings.exact_faults.append(reason)


def compare_later_moves(case: Case, worker: Worker, residence: str, time_limit: float,
                        findings: Findings) -> None:
    """Refuse if the steps after a strategy's whole ones moved too little. Raises Failed."""
    question, later = case.question, strategies.of(case.strategy).later
    assert later
    whole, allowed = later
    with AnswerFolder(question.folder) as folder:
        trainer = Trainer(worker, case, residence, time_limit, folder)
        ours = trainer.train(question.file(PLAIN), 0, LATER_STEPS).parameters[-1]
        early, late = (case.answer(PLAIN, steps)[1] for steps in (whole, LATER_STEPS))
        errors = distances.later_errors(case.network, whole,
                                        (ours, early, late, case.start(PLAIN)))
    strays = {name: error for name, error in errors.items()
              if not error <= max(allowed, case.limit_of(name).distance)}
    if strays:
        worst = max(strays, key=lambda name: nan_last(strays[name]))
        findings.exact_faults.append(
            f"steps {whole + 1} to {LATER_STEPS}, whose gradients are not sent whole, have moved "
            f"{worst} otherwise (relative error {strays[worst]:.2g}, allowed {allowed:.2g}, 1 if "
            "nothing arrived)")
