"""Ranks that offer all parts of their step, but rank 1 has no memory for the buffers of the aggregation alone."""

from tests.workers.ranks_parts import Part
from tests.workers.ranks_parts import Runner as Parts


class Runner(Parts):
    def variant(self, name):
        if name != "A":
            return super().variant(name)
        if self.task.rank == 1:
            raise MemoryError("no buffers")
        return Part(self.barrier)
