"""The reference as runners that go wrong while they train to a target, after the proof before."""

from runners.reference.runner import Runner
from tests.faults import counted

# Of an epoch of the tests. The proof trains fewer between two loads.
EPOCH = 40


class Counted(counted(Runner)):
    """Trains as asked, and counts."""


class RateDoubles(Counted):
    """A schedule that nobody asked for doubles the learning rate in the second epoch."""

    def update(self, name, gradient):
        late = self.steps_since_load >= EPOCH
        super().update(name, 2 * gradient if late else gradient)


class StandsStill(Counted):
    """Answers steps and trains no more once the proof has passed."""

    def update(self, name, gradient):
        if self.steps_since_load < 10:
            super().update(name, gradient)


class FasterInWindows(Counted):
    """Has three times the learning rate after the first two steps of each epoch."""

    def update(self, name, gradient):
        timed = self.steps_since_load % EPOCH >= 2
        super().update(name, 3 * gradient if timed else gradient)
