"""The simulated runner with 5 % of extra work in each step."""

from tests.workers.simulated import Runner as Simulated


class Runner(Simulated):
    slower = 1.05
