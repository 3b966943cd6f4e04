"""PyTorch's runner on several devices with one fault each."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from runners.pytorch import aggregation, ddp, one_bit, parallel
from runners.pytorch.runner import Runner
from tests.faults import planted, rows_of_next_batch

DistributedDataParallel = ddp.DistributedDataParallel
power_sgd = ddp.PowerSGD.hook


def signs(state, bucket):
    values = bucket.buffer()
    rounded = torch.sign(values) * values.abs().mean() / dist.get_world_size()
    return added(rounded)


def add_up(state, bucket):
    return added(bucket.buffer())


def added(values):
    work = dist.all_reduce(values, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def matrices(state, bucket):
    """The gradients of a bucket that PowerSGD compresses in this step."""
    whole = state.iter < ddp.VANILLA_STEPS
    return [] if whole else [each for each in bucket.gradients() if each.dim() > 1]


def of_one_rank(state, bucket):
    for gradient in matrices(state, bucket):
        dist.broadcast(gradient, 0)
    return power_sgd(state, bucket)


def silent(state, bucket):
    compressed = matrices(state, bucket)

    def without(future):
        for gradient in compressed:
            gradient.zero_()
        return future.value()

    return power_sgd(state, bucket).then(without)


def in_small_buckets(model, **options):
    return DistributedDataParallel(model, bucket_cap_mb=64 / 2**20, **options)


class OneBitAdded(one_bit.OneBit):
    def average(self):
        super().average()
        self.flat *= self.ranks


# `bf16_compress` sends one bit of each value and forgets what that loses.
Coarse = planted(Runner, ddp.BF16Compress, hook=staticmethod(signs))
# `one_bit` answers with the sum over all ranks, not with their mean.
OneBitSum = planted(Runner, one_bit, OneBit=OneBitAdded)
# `power_sgd` sends rank 0's matrices only, in place of the mean over all ranks.
PowerSgdOneRank = planted(Runner, ddp.PowerSGD, hook=staticmethod(of_one_rank))
# `power_sgd` sends none of the matrices that it compresses: their gradients are zero.
PowerSgdSilent = planted(Runner, ddp.PowerSGD, hook=staticmethod(silent))
# A bucket for nearly every tensor: small networks have several then, as large ones do. No fault.
SmallBuckets = planted(planted(Runner, ddp, DistributedDataParallel=in_small_buckets),
                       dist, _DEFAULT_FIRST_BUCKET_BYTES=64)
# As many pieces of the compiled graph too, each with buckets of its own. No fault.
Pieces = planted(SmallBuckets, parallel, PIECE_BYTES=64)
OtherRows = rows_of_next_batch(Runner)


class DoNotMeet(planted(Runner, parallel, FIRST_SECONDS=2)):
    """Rank 0 sends its first number, while rank 1 never sends any."""

    def __init__(self, task):
        if task.rank == 1:
            parallel._meet = lambda device, task: threading.Event().wait()
        super().__init__(task)


class Killed(Runner):
    """Rank 1 is killed after forty steps, while it is timed, as by an operator or the kernel."""

    trained = 0

    def step(self):
        self.trained += 1
        if self.task.rank == 1 and self.trained > 40:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step()


class RingStopsEarly(Runner):
    """The ring all-reduce passes the sums on one time too few."""

    def __init__(self, task):
        super().__init__(task)
        average, messages = self.aggregation.average, 2 * (task.ranks - 1) - 1
        self.aggregation.average = lambda: stopped(average, messages)


def stopped(average, messages):
    """Let the first so many messages through."""
    real, count = aggregation.exchange, iter(range(100))
    aggregation.exchange = lambda *ends: real(*ends) if next(count) < messages else None
    try:
        average()
    finally:
        aggregation.exchange = real


class Slow(Runner):
    """Rank 1 is done with its step 0.3 s after its gradients are averaged, and rank 0 at once."""

    def step(self):
        super().step()
        if self.task.rank == 1:
            time.sleep(0.3)


class Stale(Runner):
    """Rank 1 does not apply its sixth update, the last of a proof."""

    def step(self):
        before = {name: value.detach().clone() for name, value in self._parameters().items()}
        super().step()
        if self.task.rank == 1 and self.position == 6:
            for name, parameter in self._parameters().items():
                parameter.data.copy_(before[name])


class Sum(Runner):
    """A communication hook adds gradients up and does not average them."""

    def __init__(self, task):
        super().__init__(task)
        self.replica.register_comm_hook(None, add_up)


class Units(Runner):
    """Compares copies by the units that a layer of dropout keeps, in place of its parameters."""

    def parameters(self):
        return {"units": torch.nn.functional.dropout(torch.ones(100), 0.5).numpy()}


class Unreachable(planted(Runner, parallel, WAIT_SECONDS=2)):
    """Ranks look for one another at a port where nobody listens."""

    def __init__(self, task):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        super().__init__(task)
