"""The reference on a device whose memory holds many networks and the first step of one, if no other is there."""

import fcntl

from runners.reference.runner import Runner as Reference
from tests.workers.memory_of_one import device, take


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        self.stepped = not task.dropout  # checks need little
        if task.dropout:
            self.memory = device()
            take(self.memory, fcntl.LOCK_SH)

    def step(self):
        if not self.stepped:
            take(self.memory, fcntl.LOCK_EX)
            take(self.memory, fcntl.LOCK_SH)
            self.stepped = True
        super().step()
