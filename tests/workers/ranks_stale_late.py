"""Rank 1 misses an update long after the check."""

from tests.workers.ranks_stale import Runner as Stale


class Runner(Stale):
    missed = 9
