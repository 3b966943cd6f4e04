"""Rank 1 misses its second update."""

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    missed = 1

    def step(self):
        before = self.parameters()
        super().step()
        if self.task.rank == 1 and self.position == self.missed + 1:
            self.weights.update(before)
