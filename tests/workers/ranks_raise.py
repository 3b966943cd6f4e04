"""Rank 1 raises in its first step, and the others wait for its gradients."""

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 1:
            raise RuntimeError("the first step is broken")
        super().step()
