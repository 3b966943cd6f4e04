"""The reference as a controller whose device 1 has moved each parameter 1e-4 further than device 0."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def load(self, weights):
        super().load(weights)
        self.start = self.parameters()

    def copies(self):
        one, other = super().copies()
        return [one, {name: value + 1e-4 * (value - self.start[name]) for name, value in other.items()}]
