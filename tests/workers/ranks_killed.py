"""Rank 1 is killed in its twelfth step, as by an operator or by the kernel."""

import os
import signal

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 1 and self.position == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step()
