"""Ranks on devices whose memory holds one network each: a lock on a file in the worker's folder, which goes with the network."""

import fcntl

from tests.workers.memory_of_one import device, take
from tests.workers.ranks import Runner as Correct


class Runner(Correct):
    def __init__(self, task):
        self.memory = device(task.rank)
        take(self.memory, fcntl.LOCK_EX)
        super().__init__(task)
