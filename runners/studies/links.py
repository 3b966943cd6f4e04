"""The links that gradients travel, for `dlbench study aggregation`: transfers of so many bytes.

Each link moves bytes as the aggregation strategies do: between devices through the process group,
between a device and its host's memory, or within a memory, to add them up. Transfers follow each
other without a wait, as the parts of a step do. One rank measures what needs no second one.
"""

import contextlib
import itertools
import time

import torch
import torch.distributed as dist

from runners.protocol import Part, Task, Unsupported, nothing
from runners.pytorch import parallel
from runners.pytorch.aggregation import exchange
from runners.pytorch.host import FLOAT_BYTES, add_up, adding_threads, in_lines, pin, shared_floats
from runners.pytorch.one_bit import OneBit
from runners.pytorch.runner import Runner
from runners.session import described, timed
from runners.wire import own_rank

# After this PyTorch's threads sleep; they look for work for about a millisecond first.
IDLE_SECONDS = 0.005
# Copies and sums cycle through so many bytes: gradients come from memory, not from a cache.
COLD_BYTES = 2**27


class Session:
    """The commands of a worker that measures links."""

    def __init__(self):
        self.links = None

    def hello(self):
        found = described(Runner)
        if torch.cuda.is_available():
            found["libraries"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return found

    def open(self, **task):
        """Find the other ranks; return the links, each with the reason if it is not here."""
        self.links = Links(Task(None, None, rank=own_rank(), **task))
        return {"links": {name: self.links.refusal(name) for name in LINKS}}

    def transfer(self, link, size_bytes, steps):
        """Time `steps` transfers over a link; the first of a size also runs once before.

        `idle_seconds` of the time between start and stop are no part of the transfers.
        """
        part = self.links.part(link, size_bytes)
        self.links.idle_seconds = 0.0
        answer = timed(part, steps)
        return dict(answer, idle_seconds=self.links.idle_seconds)

    def close(self):
        return {}


class Links:
    """This rank's end of every link."""

    def __init__(self, task):
        self.task, self.rank, self.ranks = task, task.rank, task.ranks
        # A trial on GPUs names no threads.
        self.threads = task.threads or 1
        several = task.ranks > 1
        self.device = parallel.join(task) if several else torch.device(task.device)
        # For a barrier of hosts.
        self.group = dist.new_group(backend="gloo") if several else None
        self.placed = {}
        self.idle_seconds = 0.0

    def refusal(self, name):
        """Say why there is no such link here; empty where there is one."""
        alone = name in BETWEEN_DEVICES and self.ranks == 1
        return "a single device has no other to send to" if alone else ""

    @contextlib.contextmanager
    def idle(self):
        """Count what runs within as no part of a transfer."""
        begin = time.monotonic()
        yield
        self.idle_seconds += time.monotonic() - begin

    def part(self, name, size_bytes):
        """Return the transfer; only the last one is kept, so that large buffers do not add up."""
        if (name, size_bytes) not in self.placed:
            if self.refusal(name):
                raise Unsupported(f"link {name}: {self.refusal(name)}")
            self.placed = {}
            move = LINKS[name](self, max(1, size_bytes // FLOAT_BYTES))
            move()
            self.placed[name, size_bytes] = Part(move, self.wait, self.begin)
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
        if host:
            return torch.zeros(count, pin_memory=self.device.type == "cuda")
        return torch.zeros(count, device=self.device)

    def in_turn(self, count, host=False):
        """Return an endless iterator over buffers of `count` floats."""
        room = max(1, COLD_BYTES // (FLOAT_BYTES * count)) * count
        return itertools.cycle(self.floats(room, host).split(count))


def send(here, count):
    """Rank 0 sends to rank 1; the others rest."""
    data = here.floats(count)
    ends = {0: lambda: exchange([(data, 1)], []), 1: lambda: exchange([], [(data, 0)])}
    return ends.get(here.rank, nothing)


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
    alone = here.rank + 1 == here.ranks
    return nothing if alone else lambda: exchange([], [(data, here.rank + 1)])


def fan_in(here, count):
    """All others send to rank 0 at once; the bytes are those that rank 0 receives."""
    return fan(here, count, inwards=True)


def fan_out(here, count):
    """Rank 0 sends to all others at once; the bytes are those that it sends."""
    return fan(here, count, inwards=False)


def fan(here, count, inwards):
    others = range(1, here.ranks)
    ends = [(here.floats(max(1, count // len(others))), other)
            for other in (others if here.rank == 0 else [0])]
    receives = inwards == (here.rank == 0)
    return lambda: exchange([], ends) if receives else exchange(ends, [])


def swap(here, count):
    """Every rank sends to all others at once, each a part of the bytes, and receives as much."""
    others = [rank for rank in range(here.ranks) if rank != here.rank]
    outgoing, incoming = ([(here.floats(max(1, count // len(others))), other) for other in others]
                          for _ in range(2))
    return lambda: exchange(outgoing, incoming)


def all_reduce(here, count):
    """The library's own sum over all ranks."""
    data = here.floats(count)
    return lambda: dist.all_reduce(data)


def to_host(here, count):
    """Every device copies to its part of the host's memory; the host waits for all."""
    move = copy(here, here.in_turn(count), here.in_turn(count, host=True))
    return lambda: (move(), here.wait(), here.meet())


def from_host(here, count):
    """Every device copies from the host's memory, all at once."""
    return copy(here, here.in_turn(count, host=True), here.in_turn(count))


def host_sum_one(here, count):
    """One thread of rank 0 (NumPy's) makes the mean of all ranks' buffers in host memory."""
    return host_sum(here, count, torch.Tensor.numpy, 0.0)


def host_sum_all(here, count):
    """All threads of rank 0 add. They sleep before, as between steps: waking 32 takes long."""
    torch.set_num_threads(adding_threads() if here.device.type == "cuda" else here.threads)
    return host_sum(here, count, torch.Tensor.detach, IDLE_SECONDS)


def host_sum(here, count, kind, rest_seconds):
    """The strategies' own mean of n buffers, sized to touch the memory of adding `count` floats.

    A copy, n - 1 additions and a division of buffers are as much as n + 1/3 additions. As in a
    step, each buffer was written just before and no other memory was, because what fits into the
    processor's cache is added faster.
    """
    buffer = max(1, round(count / (here.ranks + 1 / 3)))
    if here.group:
        memory = shared_floats(here.ranks + 1, buffer, here.rank, here.group)
    else:
        whole = here.floats((here.ranks + 1) * in_lines(buffer), host=True)
        memory = whole.view(here.ranks + 1, -1)[:, :buffer]
    if here.rank:
        return here.meet
    gradient, addends = here.floats(buffer), kind(memory)

    def work():
        with here.idle():
            end = time.monotonic() + rest_seconds
            for row in memory[:-1]:
                row.copy_(gradient, non_blocking=True)
            here.wait()
            # A sleep would end late.
            while time.monotonic() < end:
                pass
        add_up(addends)
        here.meet()

    if here.group and here.device.type == "cuda":
        pin(work, memory)
    return work


def device_sum(here, count):
    """Every device adds one of its buffers to another."""
    torch.set_num_threads(here.threads)
    targets, sources = here.in_turn(count), here.in_turn(count)
    return lambda: next(targets).add_(next(sources))


def device_copy(here, count):
    """Every device copies one of its buffers to another."""
    return copy(here, here.in_turn(count), here.in_turn(count))


def bit_pack(here, count):
    """Every device packs `count` values into bits as 1-bit SGD does, and keeps the error."""
    one_bit = one_bit_of(here, count)
    return lambda: one_bit.pack(one_bit.blocks, one_bit.errors, slice(None))


def bit_unpack(here, count):
    """Every device restores `count` values from bits."""
    one_bit = one_bit_of(here, count)
    packed = one_bit.pack(one_bit.blocks, one_bit.errors, slice(None))
    return lambda: one_bit.unpack(packed)


def one_bit_of(here, count):
    torch.set_num_threads(here.threads)
    return OneBit([here.floats(count)], here.task)


def copy(here, sources, targets):
    torch.set_num_threads(here.threads)
    return lambda: next(targets).copy_(next(sources), non_blocking=True)


BETWEEN_DEVICES = {each.__name__: each
                   for each in (send, shift, pair, fan_in, fan_out, swap, all_reduce)}
LINKS = {**BETWEEN_DEVICES, **{each.__name__: each for each in (
    to_host, from_host, host_sum_one, host_sum_all, device_sum, device_copy, bit_pack, bit_unpack)}}
session = Session
