"""CNTK that answers with the first gradient that its 1-bit learner sent: what was not sent is missing."""

from tests.workers import cntk_one_bit_mean
from tests.workers.cntk_one_bit_mean import Runner

__all__ = ["Runner"]

cntk_one_bit_mean.STEPS = 1
