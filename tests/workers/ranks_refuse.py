"""Rank 0 refuses its first step, and the others wait for its gradients."""

from runners.protocol import Unsupported
from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 0:
            raise Unsupported("no collective here")
        super().step()
