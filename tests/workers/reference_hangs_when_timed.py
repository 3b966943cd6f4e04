"""The reference, right in its check, that hangs in its first timed step, its heart still beating."""

import threading

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        self.timed = task.dropout

    def step(self):
        if self.timed:
            threading.Event().wait()
        super().step()
