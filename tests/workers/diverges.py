"""Reports a loss that is not a number after the fourth step."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    steps = 0

    def step(self):
        self.steps += 1
        super().step()

    def loss(self):
        return float("nan") if self.steps > 4 else super().loss()
