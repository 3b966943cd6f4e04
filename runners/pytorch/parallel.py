"""PyTorch with a process a device, as its tutorials teach it: torchrun and a process group.

The group is NCCL's on GPUs and gloo's on CPUs. How gradients become one is a strategy's business:
see `strategies`.
"""

import datetime
import os
import time

import torch
import torch.distributed as dist

from runners.protocol import Unsupported, refuse_unknown
from runners.pytorch.aggregation import Aggregation
from runners.pytorch.strategies import STRATEGIES, implementation

# How long a rank waits for the others, which may compile meanwhile.
WAIT_SECONDS = 600
# How long the first all-reduce, of one number, may take; making communicators takes seconds.
FIRST_SECONDS = 120
# What `torch.compile` gets on several devices. DDP's own splitter failed on GPUs (torch 2.11:
# strides of channels-last weights, gradients of size 0). One graph of all layers would return all
# gradients at its end, and nothing would be sent meanwhile.
UNSPLIT = "optimize_ddp=False"
# As many as DDP sends at once.
PIECE_BYTES = 25 * 2**20
PIECES = "graph breaks at 25 MiB of gradients"
# Steps before a graph is captured: DDP sorts its buckets and times itself in the first ten.
WARM_UP_STEPS = 11


def join(task):
    """Find the other ranks, once a process, and return this rank's device."""
    if task.device == "cuda":
        if local_rank(task) >= torch.cuda.device_count():
            raise Unsupported(f"rank {task.rank} has no GPU: this process sees "
                              f"{torch.cuda.device_count()}")
        torch.cuda.set_device(local_rank(task))
    if not dist.is_initialized():
        if task.tuning == "tuned":
            # Its watchdog would break a capture; the driver has its own limits.
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        if task.tuning != "stock":
            torch._dynamo.config.optimize_ddp = False
        wait = datetime.timedelta(seconds=WAIT_SECONDS)
        dist.init_process_group("nccl" if task.device == "cuda" else "gloo", timeout=wait)
        _meet(_device(task), task)
    return _device(task)


def local_rank(task):
    """Return the number of this rank's device on its node, as torchrun says."""
    return int(os.environ.get("LOCAL_RANK", task.rank))


def _device(task):
    return torch.device("cuda", local_rank(task)) if task.device == "cuda" else torch.device("cpu")


def _meet(device, task):
    """All-reduce one number, which never ends where GPUs do not reach one another directly.

    Raises RuntimeError then, and says what helps, long before a check would time out.
    """
    message = dist.all_reduce(torch.ones(1, device=device), async_op=True)
    until = time.monotonic() + FIRST_SECONDS
    while not message.is_completed():
        if time.monotonic() > until:
            raise RuntimeError(
                f"the first all-reduce of {task.ranks} devices did not end in {FIRST_SECONDS} s; "
                "where GPUs do not reach one another directly (IOMMU, ACS), NCCL_P2P_DISABLE=1 "
                "sends through the host's memory")
        time.sleep(0.001)
    message.wait()


def aggregated(model, task):
    """Return what to call in place of `model`, and the `Aggregation` of its ranks' gradients."""
    if task.ranks == 1:
        return model, Aggregation()
    refuse_unknown(task, strategies=STRATEGIES)
    strategy = implementation(task.strategy)
    if task.device == "cuda" and task.tuning == "tuned" and not strategy.capturable:
        raise Unsupported(f"strategy '{task.strategy}' waits on the host, which the CUDA graph of "
                          "tuned cannot: use stock")
    return strategy.around(model, task)


def compile_settings(task):
    """Name what `torch.compile` sets of several devices."""
    if task.ranks == 1:
        return []
    sends = task.strategy in STRATEGIES and implementation(task.strategy).sends_in_backward
    return [UNSPLIT, *([PIECES] if sends else [])]


def settings(task):
    """Name what `tuned` turns on in the strategy."""
    known = task.strategy in STRATEGIES
    return list(implementation(task.strategy).tuned_settings) if known else []


def wait_for_all(task):
    """Return when all ranks have come here and their devices are idle."""
    if task.device == "cuda":
        dist.barrier(device_ids=[local_rank(task)])
        torch.cuda.synchronize()
    else:
        dist.barrier()
