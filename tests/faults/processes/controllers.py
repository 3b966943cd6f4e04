"""The reference as one process that drives two devices, with one fault each."""

import numpy as np

from runners.reference.runner import Runner


class Off(Runner):
    """Device 1 has moved each parameter 1e-4 further than device 0."""

    def load(self, weights):
        super().load(weights)
        self.start = self.parameters()

    def copies(self):
        one, other = super().copies()
        start = self.start
        return [one, {name: value + 1e-4 * (value - start[name]) for name, value in other.items()}]


class Rounds(Runner):
    """Device 1 holds every parameter one unit in the last place off."""

    def copies(self):
        one, other = super().copies()
        up = np.float32(np.inf)
        return [one, {name: np.nextafter(value.astype(np.float32), up)
                      for name, value in other.items()}]


class StaleLate(Runner):
    """Device 1 misses an update long after the check."""

    missed = None  # what the update would have added

    def step(self):
        before = self.parameters()
        super().step()
        if self.position == 10:
            after = self.parameters()
            self.missed = {name: after[name] - before[name] for name in after}

    def copies(self):
        one, other = super().copies()
        if self.missed:
            other = {name: value - self.missed[name] for name, value in other.items()}
        return [one, other]
