"""The reference with the parts F and FB, on a device whose memory holds many networks and the FB of one, if no other is there."""

import fcntl

from runners.reference.runner import Runner as Reference
from tests.workers.memory_of_one import device, take
from tests.workers.ranks_parts import Part


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        if task.dropout:  # checks need little
            self.memory = device()
            take(self.memory, fcntl.LOCK_SH)

    def variant(self, name):
        if name == "FB":
            take(self.memory, fcntl.LOCK_EX)
            take(self.memory, fcntl.LOCK_SH)
        return Part(self.step) if name in ("F", "FB") else super().variant(name)
