"""The reference with a loss that is reported a hundredth too large: another loss function, or a mean over other samples."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        self.factor = 1.01 if task.dropout else 1.0  # checks are right, so that only the timed losses can tell

    def loss(self):
        return self.factor * super().loss()
