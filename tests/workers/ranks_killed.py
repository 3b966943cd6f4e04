"""Rank 1 is killed in its ninth step, the first that is not one of the single ones, as by an operator or by the kernel."""

import os
import signal

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 1 and self.position == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step()
