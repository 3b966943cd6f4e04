"""Ranks that seem to run on GPUs: each step launches kernels through `tests/fake_cupti`, where the environment has it."""

import copy
import importlib.util

from tests.workers import traced
from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def __init__(self, task):
        on_cpu = copy.copy(task)
        on_cpu.device = "cpu"
        super().__init__(on_cpu)
        self.clock = 1000  # nanoseconds

    def step(self):
        super().step()
        if importlib.util.find_spec("cupti"):
            traced.launch(self)
