"""The reference with a profiler, on a device whose memory holds two workers that have built a timed network, until they end."""

import fcntl

from runners.reference.runner import Runner as Reference
from tests.workers.memory_of_one import device, take

HELD = []


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        if task.dropout and not HELD:  # checks need little
            HELD.append(room())

    def profile(self, run):
        run()
        return [("aten::mm", "a", 0.0, 1.0)]


def room():
    """Take a half of the memory."""
    first, second = device(0), device(1)
    try:
        take(first, fcntl.LOCK_EX)
        return first
    except MemoryError:
        take(second, fcntl.LOCK_EX)
        return second
