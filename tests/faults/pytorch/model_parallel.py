"""Faults of ranks that divide the network, and a worker that counts what such ranks send."""

import os
import time
from collections import Counter

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial
from torch.distributed.tensor.parallel import RowwiseParallel
from torch.utils._python_dispatch import TorchDispatchMode

from runners.protocol import Task
from runners.pytorch.model_parallel.pipeline import Pipeline
from runners.pytorch.model_parallel.tensor import Tensor
from runners.pytorch.runner import Runner
from tests.faults import counted, planted

# What each of n ranks in a ring sends of its tensor, in tensors.
SHARES = {"all_reduce": lambda n: 2 * (n - 1) / n, "allreduce": lambda n: 2 * (n - 1) / n,
          "all_gather": lambda n: n - 1, "allgather": lambda n: n - 1,
          "reduce_scatter": lambda n: (n - 1) / n, "send": lambda n: 1}
SENDS_NOTHING = ("recv", "wait", "wrap_tensor")


class Counted(TorchDispatchMode):
    """Adds up what this rank sends, by the operation and its type."""

    def __init__(self):
        super().__init__()
        self.sent = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if "c10d" in name and not any(word in name for word in SENDS_NOTHING):
            operation = name.split(".")[1]
            share = next(share for word, share in SHARES.items() if word in operation)
            # These take the output first.
            source = args[operation in ("_allgather_base_", "_reduce_scatter_base_")]
            for tensor in [source] if isinstance(source, torch.Tensor) else source:
                sent = share(ranks_of(args)) * tensor.numel() * tensor.element_size()
                self.sent[f"{operation} {str(tensor.dtype)[6:]}"] += sent
        return function(*args, **(kwargs or {}))


def ranks_of(args):
    """Return the number of ranks of the group among the arguments of an operation."""
    for each in args:
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):
            return dist.ProcessGroup.unbox(each).size()
    names = [each for each in args if isinstance(each, str) and each not in ("sum", "avg", "max")]
    return dist.distributed_c10d._resolve_process_group(names[-1]).size()


class Session:
    def hello(self):
        return {}

    def sent(self, network, batch, **task):
        """Train two steps; return the bytes that all ranks send in the second, by operation."""
        rank = int(os.environ["RANK"])
        task = Task(network, batch, rank=rank, devices=task["ranks"], **task)
        runner = Runner(task)
        rows = [1, batch * (task.devices if runner.whole_batch else 1)]
        inputs = np.zeros(rows + list(network["input_shape"]), np.float32)
        runner.feed(inputs, np.zeros(rows + list(network["target_shape"]), np.int32), "device")
        runner.step()
        with Counted() as counted:
            runner.step()
        everybodys = [None] * task.ranks
        dist.all_gather_object(everybodys, dict(counted.sent))
        total = sum(map(Counter, everybodys), Counter())
        return {"sent": dict(total), "settings": list(runner.settings)}

    def close(self):
        return {}


def session():
    return Session()


# The second of two dense layers gives each rank its own part of the sum.
NotAllReduced = planted(Runner, Tensor, row_parallel=staticmethod(
    lambda: RowwiseParallel(output_layouts=Partial())))
# Gradients of micro-batches are added up and not averaged.
SummedMicroBatches = planted(Runner, Pipeline, scale_grads=False)
# First and last stage each train their copy of a tied table by their own gradient.
TablesApart = planted(Runner, Pipeline, _add_tables_up=lambda self: None)


class SkipsOneUpdate(counted(Runner)):
    """Rank 1 does not apply its second update since weights were loaded: its shard stays."""

    def step(self):
        held = [parameter.to_local() for parameter in self.model.parameters()]
        before = [each.detach().clone() for each in held]
        super().step()
        if self.task.rank == 1 and self.steps_since_load == 2:
            for shard, value in zip(held, before, strict=True):
                shard.detach().copy_(value)


class Sleeps(Runner):
    """Each stage sleeps while it runs a micro-batch forward, which takes no time else."""

    seconds = (0.05, 0.05)

    def __init__(self, task):
        super().__init__(task)
        own = self.seconds[task.rank]
        self.model.register_forward_pre_hook(lambda model, inputs: time.sleep(own))


class LastStageSleepsLonger(Sleeps):
    seconds = (0.01, 0.05)


class HoldsAll(Runner):
    """Says `fsdp` and trains like DDP, the whole network on each rank."""

    def __init__(self, task):
        task.strategy = "ddp"
        super().__init__(task)
        self.aggregation.held = lambda parameters: {
            name: parameter.numel() for name, parameter in parameters.items()}


class SaysNothing(HoldsAll):
    """As `HoldsAll`, and does not say what it holds."""

    def held(self):
        return None
