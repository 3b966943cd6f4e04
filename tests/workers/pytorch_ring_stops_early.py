"""PyTorch's runner whose ring all-reduce passes the sums on one time too few."""

from runners.pytorch import aggregation
from runners.pytorch.runner import Runner as PyTorch


class Runner(PyTorch):
    def __init__(self, task):
        super().__init__(task)
        whole = self.aggregation.average
        self.aggregation.average = lambda: stopped(whole, messages=2 * (task.ranks - 1) - 1)


def stopped(average, messages):
    """Let the first so many messages through."""
    real, count = aggregation.exchange, iter(range(100))
    aggregation.exchange = lambda sends, receives: real(sends, receives) if next(count) < messages else None
    try:
        average()
    finally:
        aggregation.exchange = real
