"""Ranks that offer all parts of their step; rank 1 runs out of memory as A runs, or refuses it, and rank 0 waits for it."""

import os

from runners.protocol import Unsupported
from tests.workers.ranks_parts import Part
from tests.workers.ranks_parts import Runner as Parts


class Runner(Parts):
    def variant(self, name):
        return Part(self.alone) if name == "A" else super().variant(name)

    def alone(self):
        if self.task.rank == 1:
            raise MemoryError("no buffers") if os.environ["PLANTED"] == "memory" else Unsupported("no aggregation alone")
        self.barrier()
