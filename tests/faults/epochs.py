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
    """Has three times the learning rate until the last two steps of each epoch."""

    def update(self, name, gradient):
        timed = self.steps_since_load % EPOCH < EPOCH - 2
        super().update(name, 3 * gradient if timed else gradient)


class TwiceTheBatches(Counted):
    """Trains on a second batch in each step of an epoch, but the last two."""

    def step(self):
        if len(self.ring) >= EPOCH and self.position < EPOCH - 2:
            place = self.position
            self.position += EPOCH // 2
            Runner.step(self)
            self.position = place
        super().step()


class Decays(Counted):
    """Adds a weight decay that nobody asked for once the proof has passed."""

    def update(self, name, gradient):
        late = self.steps_since_load >= 10
        super().update(name, gradient + 1e-4 * self.weights[name] if late else gradient)


class LosesLastBatch(Counted):
    """Drops a batch at the end of each epoch, and begins again with the first."""

    def feed(self, inputs, targets, residence):
        kept = len(inputs) - 1 if len(inputs) > 2 else len(inputs)
        super().feed(inputs[:kept], targets[:kept], residence)


class OtherRunningShare(Counted):
    """Keeps 0.99 of its running statistics in place of 0.9 once the proof has passed."""

    def track(self):
        for attributes in self.attributes.values():
            if "running" in attributes:
                attributes["running"] = 0.99 if self.steps_since_load >= 10 else 0.9
        super().track()


class TestsInTraining(Counted):
    """Tests with the statistics of the batch that it tests."""

    def infer(self, inputs):
        return self.forward(self._place(inputs))[0]


class HalfDecay(Counted):
    """Takes the scheduled rate, and half of the weight decay."""

    def schedule(self, rate, decay):
        super().schedule(rate, decay / 2)


class IgnoresRate(Counted):
    """Trains with the network's own rate, whatever the schedule says."""

    def schedule(self, rate, decay):
        super().schedule(self.network["learning_rate"], decay)


class OtherRunningShareAlways(Counted):
    """Keeps 0.99 of its running statistics in place of 0.9."""

    def track(self):
        for attributes in self.attributes.values():
            if "running" in attributes:
                attributes["running"] = 0.99
        super().track()


class MomentumHoldsRate(Counted):
    """Multiplies gradients by the rate before it adds them to momentum, as Keras does."""

    def schedule(self, rate, decay):
        for velocity in self.velocities.values():
            velocity *= self.rate / rate
        super().schedule(rate, decay)
