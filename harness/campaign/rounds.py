"""The processes of a campaign in their order: the planned rounds, then further ones for trials whose interval is still too wide.

Each round runs its trials in an order shuffled anew, so a trial that needs more repetitions gets them among the others that do.
Who takes part in a round follows from the rounds before it alone: a campaign that is resumed goes on with the same order.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from analysis.records import reader
from analysis.trials import summary
from harness.plan.planner import Trial, execution_order
from harness.plan.suite import Suite


class Rounds:
    """An iterable of (trial, process); `total` is how many are known to come, and grows with each further round."""

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
            further = self._further(process)
            if not further:
                return
            self.total += len(further)
            yield from ((trial, process) for trial in further)

    def _further(self, process: int) -> list[Trial]:
        assert self.suite.interval is not None
        wide = summary.too_wide(reader.read(self.folder), self.suite.interval, process)
        chosen = [trial for trial, first in self.planned if first == 0 and trial.trial in wide]
        random.Random(f"{self.suite.seed}-{process}").shuffle(chosen)
        return chosen
