"""Answers no copies, so nothing can be said of whether they are equal."""

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def copies(self):
        return []
