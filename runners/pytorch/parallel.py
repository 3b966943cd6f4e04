"""PyTorch with a process a device, as its tutorials teach it: torchrun, a process group, and DistributedDataParallel.

The group is NCCL's on GPUs and gloo's on CPUs. DDP averages gradients in buckets while the backward pass still runs.
"""

import contextlib
import datetime
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from runners.protocol import Unsupported

WAIT_SECONDS = 600  # for the other ranks, which may compile meanwhile: who has not come by then will not come
FIRST_SECONDS = 120  # for one number of each rank to go round, communicators included, which take seconds
WARM_UP_STEPS = 11  # before a graph is captured, say PyTorch's notes: DDP sorts its buckets and times itself in the first ten


def join(task):
    """Find the other ranks, once a process, and return this rank's device."""
    if task.device == "cuda":
        if task.rank >= torch.cuda.device_count():
            raise Unsupported(f"rank {task.rank} has no GPU: this process sees {torch.cuda.device_count()}")
        torch.cuda.set_device(task.rank)
    if not dist.is_initialized():
        if task.tuning == "tuned":
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # its watchdog would break a capture; the driver watches anyway
            # Graphs split at DDP's buckets failed on GPUs (torch 2.11: strides of channels-last weights, gradients of size 0).
            torch._dynamo.config.optimize_ddp = False
        wait = datetime.timedelta(seconds=WAIT_SECONDS)
        dist.init_process_group("nccl" if task.device == "cuda" else "gloo", timeout=wait)
        _meet(_device(task), task)
    return _device(task)


def _device(task):
    return torch.device(task.device, task.rank) if task.device == "cuda" else torch.device("cpu")


def _meet(device, task):
    """Let one number go round. On machines whose GPUs do not reach one another directly, it never comes back.

    Raises RuntimeError then, with what helps: to wait for it in training would take the limit of each check.
    """
    message = dist.all_reduce(torch.ones(1, device=device), async_op=True)
    until = time.monotonic() + FIRST_SECONDS
    while not message.is_completed():
        if time.monotonic() > until:
            raise RuntimeError(f"the first all-reduce of {task.ranks} devices did not end in {FIRST_SECONDS} s; where GPUs do not "
                               "reach one another directly (IOMMU, ACS), NCCL_P2P_DISABLE=1 sends through the host's memory")
        time.sleep(0.001)
    message.wait()


def replicate(model, task):
    """Wrap a model that lies on this rank's device in DDP; `tuned` turns on what DDP's documentation offers for speed."""
    options = {}
    on_gpu = task.device == "cuda"
    if task.tuning == "tuned":
        # Batch norm's running averages take no part in training, so nobody needs to send them. A static graph wants its first step
        # sent, and a check of a strategy that loses something begins without (torch 2.13); on GPUs a capture's warm-up comes first.
        options = {"gradient_as_bucket_view": True, "static_graph": on_gpu or task.strategy == "ddp", "broadcast_buffers": False}
    captured = on_gpu and task.tuning == "tuned"  # PyTorch's notes on CUDA graphs want DDP made on a side stream then
    with torch.cuda.stream(torch.cuda.Stream()) if captured else contextlib.nullcontext():
        replica = DistributedDataParallel(model, device_ids=[task.rank] if on_gpu else None, **options)
    if captured:
        torch.cuda.synchronize()
    return replica


def wait_for_all(task):
    """Return when all ranks have come here, and their devices have done what this needs."""
    if task.device == "cuda":
        dist.barrier(device_ids=[task.rank])
        torch.cuda.synchronize()
    else:
        dist.barrier()
