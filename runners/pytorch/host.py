"""Averages of gradients on the host: every rank copies its buffer up, rank 0 adds them up, every rank copies the mean down.

Each device sends one message of S bytes to the host and receives one, all devices at once; n times S bytes are added. The ranks
share the memory, pinned where there is a GPU. The host waits for its copy, then for the other ranks: that is the strategy's nature.
"""

import os
import weakref

import torch
import torch.distributed as dist

from runners.pytorch.aggregation import Messages

FLOAT_BYTES = 4
LINE_BYTES = 64  # of a processor's cache, on x86 and most of Arm


class HostOne(Messages):
    """One thread adds, as in TensorFlow's example for several GPUs of 2016, whose mean was one operation of the CPU."""

    capturable = False

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.group = dist.new_group(backend="gloo")  # for the host's own barrier; NCCL's is one of devices
        # The mean has a row of its own: a rank may still copy it down when another one's next step writes its gradients.
        self.rows = shared_floats(self.ranks + 1, self.flat.numel(), self.rank, self.group)  # (n + 1, S / 4)
        self.addends = self.rows.numpy()  # NumPy adds in one thread, however many PyTorch has
        if self.flat.is_cuda:
            pin(self, self.rows)

    def average(self):
        for part in self.parts().values():
            part()

    def parts(self):
        """What `average` does, in its order, by name."""
        return {"up": self._send, "wait": self._meet, "sum": self._add_up, "wait for the sum": self._meet, "down": self._receive}

    def _send(self):
        self.rows[self.rank].copy_(self.flat, non_blocking=True)
        if self.flat.is_cuda:
            torch.cuda.current_stream().synchronize()

    def _meet(self):
        dist.barrier(self.group)

    def _add_up(self):
        if self.rank == 0:
            add_up(self.addends)

    def _receive(self):
        self.flat.copy_(self.rows[-1], non_blocking=True)


class HostAll(HostOne):
    """Many threads of rank 0 add, as in Torch and MXNet's `local`: half the processors beside GPUs, the task's threads on a CPU."""

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.addends = self.rows
        if self.flat.is_cuda:
            torch.set_num_threads(adding_threads())


def adding_threads():
    """How many threads add on the host of GPUs: half as many as there are processors, two of which may be one core.

    Each of the sum's operations waits for its slowest thread, and a thread that shares its core waits for the scheduler's turn, 4
    to 8 ms. On 64 processors (four H200s) the mean of four times 57 MB took 2.0 ms with 32 threads (twelve times, at most 3.3), 2.8
    with 16, and with 64 mostly 35, at times 1.8; on 32 processors (two H200s) 1.6 with 16 threads, with 32 as long or up to 25.
    """
    return max(1, len(os.sched_getaffinity(0)) // 2)


def add_up(rows):
    """Put the mean of all rows but the last into the last; `rows` (n + 1, count) is NumPy's or PyTorch's, whose threads add."""
    *parts, mean = rows
    mean[:] = parts[0]
    for part in parts[1:]:
        mean += part
    mean /= len(parts)


def shared_floats(rows, columns, rank, group):
    """Return float32 memory (rows, columns) that all ranks share. It has no name in any folder, so nothing is left of it."""
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
    """Return the floats of as many whole cache lines as `count` of them need: a row after these begins on a line, as PyTorch's own
    memory does. Else an addition's vectors lie across two lines, which costs some processors time."""
    line = LINE_BYTES // FLOAT_BYTES
    return -(-count // line) * line


def pin(owner, memory):
    """Let the GPU reach host memory directly, all that `memory` is a view of, for as long as `owner` lives."""
    runtime, whole = torch.cuda.cudart(), memory.untyped_storage()
    torch.cuda.check_error(int(runtime.cudaHostRegister(whole.data_ptr(), whole.nbytes(), 0)))
    weakref.finalize(owner, runtime.cudaHostUnregister, whole.data_ptr())
