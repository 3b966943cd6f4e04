"""The processes of a campaign in order: planned rounds, then more for trials with wide intervals.

Each round shuffles its trials anew, so a trial that needs more processes runs them among others.
Its trials follow from the rounds before it, so a resumed campaign keeps the order.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from analysis.records import reader
from analysis.trials import summary
from harness.plan.planner import Trial, execution_order
from harness.plan.suite import Suite


class Rounds:
    """Yields (trial, process). `total` is how many are known; it grows with each further round."""

    def __init__(self, planned: list[Trial], suite: Suite, folder: Path):
        self.planned = execution_order(planned, suite.processes, suite.seed)
        self.suite = suite
        self.folder = folder
        self.total = len(self.planned)

    def __iter__(self) -> Iterator[tuple[Trial, int]]:
        yield from self.planned
        if self.suite.interval is None:
            return
        for process in range(self.suite.processes, self.suite.processes_most):
            wide = summary.too_wide(reader.read(self.folder), self.suite.interval, process)
            further = [trial for trial, first in self.planned if first == 0 and trial.trial in wide]
            if not further:
                return
            random.Random(f"{self.suite.seed}-{process}").shuffle(further)
            self.total += len(further)
            yield from ((trial, process) for trial in further)
