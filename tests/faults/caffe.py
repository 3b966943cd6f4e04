"""Caffe's runner with one fault each."""

from runners.caffe import runner
from runners.caffe.runner import L, Runner, openblas
from runners.protocol import Unsupported
from tests.faults import planted

# Pooling that rounds up, as Caffe pools unless told otherwise and as DLBench's AlexNet-R had it.
Ceil = planted(Runner, runner, pool=lambda x, method, kernel, stride, padding, ceil=False: (
    L.Pooling(x, pool=method, kernel_size=kernel, stride=stride, pad=padding)))

# Batch norm that only normalises, as DLBench's files had it.
NoScale = planted(Runner, runner, batch_norm=lambda x, a: L.BatchNorm(
    x, eps=a["epsilon"], use_global_stats=False, param=[{"lr_mult": 0}] * 3))

# Running statistics that the solver trains, as where nobody writes lr_mult: 0.
TrainedStatistics = planted(Runner, runner, batch_norm=lambda x, a: L.Scale(
    L.BatchNorm(x, eps=a["epsilon"], use_global_stats=False), bias_term=True))


class Reloads(Runner):
    """Takes two steps, once round the ring, then loads the same weights and starts over: no fault."""

    def load(self, weights):
        super().load(weights)
        self.step()
        self.step()
        super().load(weights)


class KeepsMomentum(Reloads):
    """A solver that outlives new weights, with the momentum of two steps before."""

    def _make_solver(self):
        if not getattr(self, "solver", None):
            super()._make_solver()


class KeepsState(Runner):
    """An LSTM that goes on from the last batch's state: all continuation indicators are one."""

    def _make_solver(self):
        super()._make_solver()
        self.net.blobs["going_on"].data[...] = 1


class Threads(Runner):
    """Refuses every task with the number of threads that OpenBLAS has once the runner is built."""

    def __init__(self, task):
        super().__init__(task)
        raise Unsupported(f"OpenBLAS has {openblas().openblas_get_num_threads()} threads")
