"""Runners that go wrong in one way each, named `tests.faults.<file>:<Class>`; a file a framework.

Folders: `processes` has the reference as processes that break, `training` runners that train
otherwise than asked, `engines` inference and `studies` what studies time.
A fault in a runner's method is a class of its own. One in a module is `planted` there.
Python 3.6 syntax, because old frameworks load these files.
"""

from unittest import mock

import numpy as np


def planted(Runner, target, **replacements):
    """Return a `Runner` that replaces attributes of a module or class before it builds."""

    class Planted(Runner):
        def __init__(self, task, *arrays):
            mock.patch.multiple(target, **replacements).start()
            super().__init__(task, *arrays)

    return Planted


def uproot():
    """Put back what was replaced in this process."""
    mock.patch.stopall()


def counted(Runner):
    """Return a `Runner` that knows its task and counts its steps since it was built and loaded."""

    class Counted(Runner):
        steps = steps_since_load = 0

        def __init__(self, task):
            self.task = task
            super().__init__(task)

        def load(self, weights):
            super().load(weights)
            self.steps_since_load = 0

        def step(self):
            super().step()
            self.steps += 1
            self.steps_since_load += 1

    return Counted


def rows_of_next_batch(Runner):
    """Return a `Runner` that trains the last rank or device on its rows of the next batch."""

    class OtherRows(Runner):
        def feed(self, inputs, targets, residence):
            batch, of_ranks = self.task.batch, self.task.ranks > 1
            if not of_ranks or self.task.rank == self.task.ranks - 1:
                inputs, targets = inputs.copy(), targets.copy()
                for samples in (inputs, targets):
                    samples[:, -batch:] = np.roll(samples, 1, axis=0)[:, -batch:]
            super().feed(inputs, targets, residence)

    return OtherRows
