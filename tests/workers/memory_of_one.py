"""The reference on a device whose memory holds one timed network: a lock on a file, which goes with the network."""

import fcntl

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        if task.dropout:  # checks need little
            self.memory = device()
            take(self.memory, fcntl.LOCK_EX)


def device(number=0):
    return open(f"memory-{number}", "w")


def take(memory, lock):
    try:
        fcntl.flock(memory, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MemoryError("another worker holds the memory") from None
