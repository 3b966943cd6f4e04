"""PyTorch's runner whose `one_bit` answers with the sum over all ranks, not with their mean."""

from runners import pytorch_strategies
from runners.pytorch_one_bit import OneBit
from runners.pytorch_runner import Runner

__all__ = ["Runner"]


class Sum(OneBit):
    def average(self):
        super().average()
        self.flat *= self.ranks


pytorch_strategies.AFTER_BACKWARD["one_bit"] = Sum
