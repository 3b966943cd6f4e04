"""Ranks that offer parts of their step, all but the aggregation alone."""

from runners.protocol import Unsupported
from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def variant(self, name):
        parts = {"F": self.look, "FB": self.of_own_rows, "FBA": lambda: self.averaged(self.of_own_rows()), "FBAU": self.step}
        if name not in parts:
            raise Unsupported(f"sums on a socket have no '{name}'")
        return Part(parts[name])

    def look(self):
        self.forward(self._place(self.ring[0][0]))


class Part:
    def __init__(self, step):
        self.step = step

    def synchronize(self):
        pass  # NumPy returns when it is done
