"""Refuses to train for the clock in a process that has made a check."""

from runners.reference import runner


class Runner(runner.Runner):
    checked = False

    def gradients(self):
        Runner.checked = True
        return super().gradients()

    def feed(self, inputs, targets, residence):
        if Runner.checked and residence == "host":
            raise RuntimeError("this process was checked before")
        super().feed(inputs, targets, residence)
