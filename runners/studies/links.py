"""The links that gradients travel, for `dlbench study aggregation`: one transfer of so many bytes, timed by the protocol's loop.

Each link moves bytes as the aggregation strategies do: between devices through the process group (NCCL's or gloo's), between a
device and its host's memory, or within a memory, to add them up. Transfers follow each other without a wait between them, as the
parts of a step do. A group of one rank measures what needs no second one.
"""

import contextlib
import itertools
import os
import platform
import time

import torch
import torch.distributed as dist

from runners.protocol import Task, Unsupported, timed_run
from runners.pytorch import parallel
from runners.pytorch.aggregation import exchange
from runners.pytorch.host import FLOAT_BYTES, add_up, adding_threads, in_lines, pin, shared_floats
from runners.pytorch.one_bit import OneBit

IDLE_SECONDS = 0.005  # after which PyTorch's threads sleep; they look for work for about a millisecond first
COLD_BYTES = 2**27  # of the buffers that copies and sums take in turn: gradients come from memory, not from a cache


def session():
    return Session()


class Session:
    """The commands of a worker that measures links."""

    def __init__(self):
        self.links = None

    def hello(self):
        cuda = torch.cuda.is_available()
        return {"release": torch.__version__.split("+")[0], "pid": os.getpid(),
                "device_name": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
                "libraries": {"build": torch.__version__, "cuda": torch.version.cuda,
                              "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None}}

    def open(self, **task):
        """Find the other ranks; answer which links there are, each with the reason where it cannot be measured here."""
        rank = int(os.environ[os.environ["DLBENCH_RANK_IN"]]) if "DLBENCH_WIRE" in os.environ else 0
        self.links = Links(Task(None, None, rank=rank, **task))
        return {"links": {name: self.links.refusal(name) for name in LINKS}}

    def transfer(self, link, size_bytes, steps):
        """Time `steps` transfers over a link; the first of a size places its buffers and runs once unseen.

        `idle_seconds` of the time between start and stop are no part of the transfers.
        """
        part = self.links.part(link, size_bytes)
        self.links.idle_seconds = 0.0
        start, stop = timed_run(part, steps)
        return {"steps": steps, "start": start, "stop": stop, "idle_seconds": self.links.idle_seconds}

    def close(self):
        return {}


class Links:
    """This rank's end of every link."""

    def __init__(self, task):
        self.task = task
        self.rank, self.ranks = task.rank, task.ranks
        self.threads = task.threads
        self.device = parallel.join(task) if task.ranks > 1 else torch.device(task.device)
        self.group = dist.new_group(backend="gloo") if task.ranks > 1 else None  # for the host's own barrier
        self.placed = {}
        self.idle_seconds = 0.0

    def refusal(self, name):
        """Why there is no such link here; empty where there is one."""
        if name in BETWEEN_DEVICES and self.ranks == 1:
            return "a single device has no other to send to"
        return ""

    @contextlib.contextmanager
    def idle(self):
        """What runs within is no part of a transfer."""
        begin = time.monotonic()
        yield
        self.idle_seconds += time.monotonic() - begin

    def part(self, name, size_bytes):
        """The transfer as `timed_run` wants it. Only the last one is kept, so that large buffers do not add up."""
        if (name, size_bytes) not in self.placed:
            if self.refusal(name):
                raise Unsupported(f"link {name}: {self.refusal(name)}")
            self.placed = {}
            transfer = Transfer(self, LINKS[name](self, max(1, size_bytes // FLOAT_BYTES)))
            transfer.step()
            self.placed[name, size_bytes] = transfer
        return self.placed[name, size_bytes]

    def begin(self):
        """Return when all ranks have come here."""
        if self.ranks > 1:
            parallel.wait_for_all(self.task)

    def wait(self):
        """Return when this rank's device has done all."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def meet(self):
        """Return when the host has come here in all ranks."""
        if self.group:
            dist.barrier(self.group)

    def floats(self, count, host=False):
        where = torch.device("cpu") if host else self.device
        pinned = host and self.device.type == "cuda"  # as DMA wants it
        return torch.zeros(count, device=where, pin_memory=pinned)

    def in_turn(self, count, host=False):
        """Buffers of so many floats, one after another for ever."""
        room = max(1, COLD_BYTES // (FLOAT_BYTES * count)) * count
        return itertools.cycle(self.floats(room, host).split(count))


class Transfer:
    """A transfer, as `timed_run` wants it: the ranks begin together, and it is done when the device is."""

    def __init__(self, here, move):
        self.step = move
        self.synchronize = here.wait
        self.barrier = here.begin


def send(here, count):
    """Rank 0 sends to rank 1; the others rest."""
    data = here.floats(count)
    return {0: lambda: exchange([(data, 1)], []), 1: lambda: exchange([], [(data, 0)])}.get(here.rank, nothing)


def shift(here, count):
    """Every rank sends to the next and receives from the one before, at once: a step of a ring."""
    outgoing, incoming = here.floats(count), here.floats(count)
    after, before = (here.rank + 1) % here.ranks, (here.rank - 1) % here.ranks
    return lambda: exchange([(outgoing, after)], [(incoming, before)])


def pair(here, count):
    """Every odd rank sends to the even one before it, all pairs at once: a level of a tree."""
    data = here.floats(count)
    if here.rank % 2:
        return lambda: exchange([(data, here.rank - 1)], [])
    return (lambda: exchange([], [(data, here.rank + 1)])) if here.rank + 1 < here.ranks else nothing


def fan_in(here, count):
    """All others send to rank 0 at once; the bytes are those that rank 0 receives."""
    return fan(here, count, inwards=True)


def fan_out(here, count):
    """Rank 0 sends to all others at once; the bytes are those that it sends."""
    return fan(here, count, inwards=False)


def fan(here, count, inwards):
    others = range(1, here.ranks)
    ends = [(here.floats(max(1, count // len(others))), other) for other in (others if here.rank == 0 else [0])]
    return (lambda: exchange([], ends)) if inwards == (here.rank == 0) else (lambda: exchange(ends, []))


def swap(here, count):
    """Every rank sends to all others at once, each a part of the bytes, and receives as much."""
    others = [rank for rank in range(here.ranks) if rank != here.rank]
    outgoing, incoming = ([(here.floats(max(1, count // len(others))), other) for other in others] for _ in range(2))
    return lambda: exchange(outgoing, incoming)


def all_reduce(here, count):
    """The library's own sum over all ranks."""
    data = here.floats(count)
    return lambda: dist.all_reduce(data)


def to_host(here, count):
    """Every device copies to its part of the host's memory, all at once, and the host waits for all."""
    move = copy(here, here.in_turn(count), here.in_turn(count, host=True))
    return lambda: (move(), here.wait(), here.meet())


def from_host(here, count):
    """Every device copies from the host's memory, all at once."""
    return copy(here, here.in_turn(count, host=True), here.in_turn(count))


def host_sum_one(here, count):
    """One thread of rank 0 makes the mean of all ranks' buffers in host memory (NumPy has no more); the others wait for it."""
    return host_sum(here, count, torch.Tensor.numpy, 0.0)


def host_sum_all(here, count):
    """All threads of rank 0 do, which slept as between two steps: waking 32 takes longer than adding up a small network."""
    torch.set_num_threads(adding_threads() if here.device.type == "cuda" else here.threads)
    return host_sum(here, count, torch.Tensor.detach, IDLE_SECONDS)


def host_sum(here, count, kind, rest_seconds):
    """The strategies' own mean of n buffers, so large that it touches as much memory as an addition of `count` to `count`.

    A copy, n - 1 additions and a division of buffers are as much as n + 1/3 additions. As in a step each buffer was written just
    before, and no other memory was: what fits into the processor's cache is added faster.
    """
    buffer = max(1, round(count / (here.ranks + 1 / 3)))
    if here.group:
        memory = shared_floats(here.ranks + 1, buffer, here.rank, here.group)
    else:
        memory = here.floats((here.ranks + 1) * in_lines(buffer), host=True).view(here.ranks + 1, -1)[:, :buffer]
    if here.rank:
        return here.meet
    gradient, addends = here.floats(buffer), kind(memory)

    def work():
        with here.idle():
            end = time.monotonic() + rest_seconds
            for row in memory[:-1]:
                row.copy_(gradient, non_blocking=True)
            here.wait()
            stay_awake_until(end)
        add_up(addends)
        here.meet()

    if here.group and here.device.type == "cuda":
        pin(work, memory)
    return work


def device_sum(here, count):
    """Every device adds one of its buffers to another."""
    torch.set_num_threads(here.threads)
    return add(here.in_turn(count), here.in_turn(count))


def device_copy(here, count):
    """Every device copies one of its buffers to another."""
    return copy(here, here.in_turn(count), here.in_turn(count))


def bit_pack(here, count):
    """Every device packs so many values into bits as 1-bit SGD does, and keeps what that takes from them."""
    one_bit = one_bit_of(here, count)
    return lambda: one_bit.pack(one_bit.blocks, one_bit.errors, slice(None))


def bit_unpack(here, count):
    """Every device restores so many values from bits."""
    one_bit = one_bit_of(here, count)
    packed = one_bit.pack(one_bit.blocks, one_bit.errors, slice(None))
    return lambda: one_bit.unpack(packed)


def one_bit_of(here, count):
    torch.set_num_threads(here.threads)
    return OneBit([here.floats(count)], here.task)


def copy(here, sources, targets):
    torch.set_num_threads(here.threads)
    return lambda: next(targets).copy_(next(sources), non_blocking=True)


def add(targets, sources):
    return lambda: next(targets).add_(next(sources))


def stay_awake_until(end):
    """Return then; a sleep would end late."""
    while time.monotonic() < end:
        pass


def nothing():
    return None


BETWEEN_DEVICES = {"send": send, "shift": shift, "pair": pair, "fan_in": fan_in, "fan_out": fan_out, "swap": swap,
                   "all_reduce": all_reduce}
LINKS = {**BETWEEN_DEVICES, "to_host": to_host, "from_host": from_host, "host_sum_one": host_sum_one,
         "host_sum_all": host_sum_all, "device_sum": device_sum, "device_copy": device_copy,
         "bit_pack": bit_pack, "bit_unpack": bit_unpack}
