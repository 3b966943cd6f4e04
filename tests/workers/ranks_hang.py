"""Rank 1 hangs in its first step, its heart still beating, and the others wait for its gradients."""

import threading

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 1:
            threading.Event().wait()
        super().step()
