"""Raises an ordinary exception in the third step."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    steps = 0

    def step(self):
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError("the third step is broken")
        super().step()
