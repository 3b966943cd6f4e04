"""Averages gradients on the host: all ranks copy up, rank 0 adds up, all copy the mean down.

Each device sends one message of S bytes to the host and receives one, all devices at once; n times
S bytes are added. The ranks share the memory, pinned where there is a GPU. The host waits for its
copy, then for the other ranks.
"""

import os
import weakref

import torch
import torch.distributed as dist

from runners.pytorch.aggregation import Messages

FLOAT_BYTES = 4
# A line of a processor's cache, on x86 and most of Arm.
LINE_BYTES = 64


class HostOne(Messages):
    """One thread adds, as in TensorFlow's example for several GPUs of 2016."""

    capturable = False

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        # For a barrier of hosts; NCCL's is one of devices.
        self.group = dist.new_group(backend="gloo")
        # The mean has its own row: a rank may still copy it down during another's next step.
        self.rows = shared_floats(self.ranks + 1, self.flat.numel(), self.rank, self.group)
        # NumPy adds in one thread, however many PyTorch has.
        self.addends = self.rows.numpy()
        if self.flat.is_cuda:
            pin(self, self.rows)

    def average(self):
        self.rows[self.rank].copy_(self.flat, non_blocking=True)
        if self.flat.is_cuda:
            torch.cuda.current_stream().synchronize()
        dist.barrier(self.group)
        if self.rank == 0:
            add_up(self.addends)
        dist.barrier(self.group)
        self.flat.copy_(self.rows[-1], non_blocking=True)


class HostAll(HostOne):
    """Many threads of rank 0 add, as in Torch and MXNet's `local`."""

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.addends = self.rows
        if self.flat.is_cuda:
            torch.set_num_threads(adding_threads())


def adding_threads():
    """Return how many threads add next to GPUs: half the processors, as two may share a core.

    Each operation waits for its slowest thread, and a thread that shares its core waits 4 to 8 ms
    for the scheduler. On 64 processors (four H200s) the mean of four times 57 MB took 2.0 ms with
    32 threads, 2.8 with 16 and mostly 35 with 64.
    """
    return max(1, len(os.sched_getaffinity(0)) // 2)


def add_up(rows):
    """Put the mean of all rows but the last into the last: (n + 1, count) of NumPy or PyTorch."""
    *parts, mean = rows
    mean[:] = parts[0]
    for part in parts[1:]:
        mean += part
    mean /= len(parts)


def shared_floats(rows, columns, rank, group):
    """Return float32 memory (rows, columns) that all ranks share and that no folder names."""
    where, size = [None], rows * in_lines(columns)
    if rank == 0:
        descriptor = os.memfd_create("dlbench-gradients")
        os.ftruncate(descriptor, FLOAT_BYTES * size)
        where = [f"/proc/{os.getpid()}/fd/{descriptor}"]
    dist.broadcast_object_list(where, src=0, group=group)
    shared = torch.from_file(where[0], shared=True, size=size)
    dist.barrier(group)
    if rank == 0:
        os.close(descriptor)
    return shared.view(rows, -1)[:, :columns]


def in_lines(count):
    """Round up to whole cache lines: then each row begins on one, as PyTorch's memory does."""
    line = LINE_BYTES // FLOAT_BYTES
    return -(-count // line) * line


def pin(owner, memory):
    """Let the GPU reach the host memory that `memory` views, for as long as `owner` lives."""
    runtime, whole = torch.cuda.cudart(), memory.untyped_storage()
    torch.cuda.check_error(int(runtime.cudaHostRegister(whole.data_ptr(), whole.nbytes(), 0)))
    weakref.finalize(owner, runtime.cudaHostUnregister, whole.data_ptr())
