"""The reference as a controller whose device 1 misses an update long after the check."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    missed = None  # what the update would have added

    def step(self):
        before = self.parameters()
        super().step()
        if self.position == 10:
            self.missed = {name: value - before[name] for name, value in self.parameters().items()}

    def copies(self):
        one, other = super().copies()
        if self.missed:
            other = {name: value - self.missed[name] for name, value in other.items()}
        return [one, other]
