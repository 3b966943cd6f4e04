"""CNTK whose learner divides the sum over all ranks by the samples of one rank."""

from runners.cntk import runner
from runners.cntk.runner import Keeper as Correct
from runners.cntk.runner import Runner

__all__ = ["Runner"]


class Keeper(Correct):
    def update(self, gradient_values, training_sample_count, sweep_end):
        return super().update(gradient_values, training_sample_count // 2, sweep_end)


runner.Keeper = Keeper
