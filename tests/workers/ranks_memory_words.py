"""An operation of rank 1 fails in its first step as TensorFlow says it; all wait, their hearts beating."""

from tests.workers.memory_words import fail_and_wait
from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def step(self):
        if self.task.rank == 1:
            fail_and_wait()
        super().step()
