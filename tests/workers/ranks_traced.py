"""Ranks that seem to run on GPUs, as tests.workers.traced does."""

from tests.workers.ranks import Runner as Ranks
from tests.workers.traced import OnGpu


class Runner(OnGpu, Ranks):
    pass
