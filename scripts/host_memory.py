"""What a sum over a host's memory owes its spread to: which memory it lies in, how many threads add, or what else runs there.

A virtual machine may show one memory where its host has two sockets. Then a processor reads some buffers faster than others, and
which ones differs from processor to processor. Linux only; needs an interpreter that has PyTorch:
    python scripts/host_memory.py > host_memory.csv
A row a repetition. `read`: one thread, held on one processor, adds up one of several buffers. `mean`: PyTorch's threads make the
mean of `--ranks` buffers as `host_all` does, in several memories and by several numbers of threads, which take turns. `one`: one
thread of NumPy does, as `host_one`, free or held on one of several processors; the host wrote the buffers just before, or GPUs did.
It does so in memories whose pages lie as the system gave them, in ones of which each buffer begins 40 bytes further behind a cache
line, as FCN-5's gradients do one after another, and in scattered ones. `busy_cores` is the processor time of the sum over its time,
`stolen_cores` what other guests of the host took of this machine's processors meanwhile, by /proc/stat; `in_order` is the share of
a memory's pages that the machine's memory goes on with their neighbour, by /proc/self/pagemap, which tells root only;
`fixed_seconds` is what the same processor took just before for work without memory; `at` counts seconds from the start.
"""

import argparse
import contextlib
import csv
import functools
import itertools
import math
import mmap
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # it may be started in any folder

from runners.pytorch.host import FLOAT_BYTES, add_up, pin

COLUMNS = ("kind", "memory", "processor", "threads", "repetition", "megabytes", "seconds", "gigabytes_per_second",
           "busy_cores", "stolen_cores", "written_by", "in_order", "fixed_seconds", "at")
MEGABYTE = 10**6
ADDITION = 3  # numbers read and written for each that is added: a += b
READINGS = 2  # of each buffer by each processor
UNSEEN = 1  # repetitions of a mean before those that count
HELD = 4  # processors, one after another, that a thread is held on
WAYS = ("as given", "behind a line", "scattered")  # that the memories of one adding thread lie
BEHIND_FLOATS = 10  # whole megabytes are whole lines of 64 bytes
FIXED_NUMBERS = 100_000  # that are added within the processor
FREED = 4  # times what scattered memories take is taken first, and every second page of it given back
FRAME = (1 << 55) - 1  # the bits of a page's entry that number its frame
STEAL = 7  # of the words of /proc/stat's first line after its name
TICKS = os.sysconf("SC_CLK_TCK")
BEGAN = time.monotonic()


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4, help="buffers of a mean")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[250],
                        help="of each buffer of a mean; several take turns in kind one. AlexNet's gradients are 250")
    parser.add_argument("--memories", type=int, default=4, help="taken anew, for means")
    parser.add_argument("--buffers", type=int, default=16, help="that each processor reads, 64 MB each")
    parser.add_argument("--repetitions", type=int, default=12, help="of a mean")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of rows")
    asked = parser.parse_args(words)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for kind in asked.kinds:
        writer.writerows(KINDS[kind](asked))


def reads(asked):
    """Yield how long each processor takes to add up each buffer; the buffers together are larger than a cache."""
    buffers = [taken(64 * MEGABYTE) for _ in range(asked.buffers)]
    torch.set_num_threads(1)
    for repetition in range(READINGS):
        for processor in processors():
            with held(processor):
                for number, buffer in enumerate(buffers):
                    yield row("read", number, repetition, buffer.nbytes, timed(buffer.sum), processor=processor, threads=1)


def means(asked):
    """Yield how long means take by numbers of threads: all processors, but one a rank, three quarters, a half and a quarter."""
    everyone = len(processors())
    shares = (everyone, everyone - asked.ranks, everyone * 3 // 4, everyone // 2, everyone // 4)
    ways = dict.fromkeys(max(1, threads) for threads in shares)
    for count, memory in itertools.product((megabytes * MEGABYTE // FLOAT_BYTES for megabytes in asked.megabytes),
                                           range(asked.memories)):
        size = (asked.ranks + 1 / 3) * count * FLOAT_BYTES  # in additions, as the study of links counts
        rows = taken((asked.ranks + 1) * count * FLOAT_BYTES).view(asked.ranks + 1, count)
        for repetition in range(-UNSEEN, asked.repetitions):
            for threads in ways:
                torch.set_num_threads(threads)
                for buffer in rows[:-1]:
                    buffer.fill_(1.0)  # a gradient was just copied here
                times = timed(lambda rows=rows: add_up(rows))
                if repetition >= 0:
                    yield row("mean", memory, repetition, size, times, threads=threads)
        del rows


def ones(asked):
    """Yield how long one thread takes for a mean: by size, by where its memory lies, by processors, by who wrote.

    All of these take turns, each repetition in another order, for what other guests do comes and goes.
    """
    torch.set_num_threads(1)  # its threads wait awake for a while
    everyone = processors()
    chosen = [None, *everyone[:: max(1, len(everyone) // HELD)][:HELD]]  # None: wherever the system lets it run
    memories = [(way, rows) for megabytes in asked.megabytes for way in WAYS for rows in lying(way, megabytes, asked)]
    names = [f"{way} {number % asked.memories}" for number, (way, _) in enumerate(memories)]
    in_order = [f"{pages_in_order(rows):.3f}" for _, rows in memories]
    sources = gradients_for([rows for _, rows in memories]) if torch.cuda.is_available() else []
    order = random.Random(0)
    for repetition in range(-UNSEEN, asked.repetitions):
        for number in order.sample(range(len(memories)), len(memories)):
            rows = memories[number][1]
            write(rows, [])
            add_up(rows.numpy())  # what the cache holds of it is as in a step that follows another
            for processor, writer in shuffled(order, itertools.product(chosen, ("host", "gpus") if sources else ("host",))):
                write(rows, sources if writer == "gpus" else [])
                with contextlib.nullcontext() if processor is None else held(processor):
                    fixed_seconds, _, _ = timed(fixed_work)
                    times = timed(functools.partial(add_up, rows.numpy()))
                if repetition >= 0:
                    size = (asked.ranks + 1 / 3) * rows[0].nbytes  # in additions, as the study of links counts
                    yield {**row("one", names[number], repetition, size, times, processor=processor, threads=1),
                           "written_by": writer, "in_order": in_order[number], "fixed_seconds": f"{fixed_seconds:.4e}"}


def shuffled(order, choices):
    choices = list(choices)
    return order.sample(choices, len(choices))


def lying(way, megabytes, asked):
    """Yield memories (ranks + 1, floats) that lie in one of WAYS."""
    count = megabytes * MEGABYTE // FLOAT_BYTES
    shape = asked.ranks + 1, count + (BEHIND_FLOATS if way == "behind a line" else 0)
    size_bytes = math.prod(shape) * FLOAT_BYTES
    with scattered_pages(FREED * asked.memories * size_bytes) if way == "scattered" else contextlib.nullcontext():
        for _ in range(asked.memories):
            yield taken(size_bytes).view(shape)[:, :count]


def fixed_work():
    """Compute within one processor, with no memory to speak of: it takes longer only where the processor is slower."""
    sum(range(FIXED_NUMBERS))


@contextlib.contextmanager
def scattered_pages(size_bytes):
    """Leave the system single free pages, half of `size_bytes`: it takes from those first what is asked for meanwhile."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    torch.frombuffer(memory, dtype=torch.float32).fill_(1.0)
    for start in range(0, size_bytes - page, 2 * page):
        memory.madvise(mmap.MADV_REMOVE, start, page)
    yield
    memory.madvise(mmap.MADV_REMOVE)


def pages_in_order(rows):
    """Return the share of pages of `rows` whose neighbour is theirs in the machine's memory too; nan where that is not told."""
    page = mmap.PAGESIZE
    first, pages = rows.data_ptr() // page, rows.nbytes // page
    with open("/proc/self/pagemap", "rb") as table:
        table.seek(8 * first)
        frames = np.frombuffer(table.read(8 * pages), np.uint64).astype(np.int64) & FRAME
    return float(np.mean(np.diff(frames) == 1)) if frames.any() else float("nan")


def gradients_for(memories):
    """Return a buffer for each rank, on GPUs in turn, as long as any needs; GPUs reach `memories` directly, as the strategies'."""
    for rows in memories:
        pin(rows, rows)
    longest, ranks = max(rows.shape[1] for rows in memories), len(memories[0]) - 1
    return [torch.ones(longest, device=f"cuda:{number % torch.cuda.device_count()}") for number in range(ranks)]


def write(rows, sources):
    """Let the GPUs write all rows but the last, or this thread where there are no sources."""
    for number, buffer in enumerate(rows[:-1]):
        if sources:
            buffer.copy_(sources[number][:len(buffer)], non_blocking=True)
        else:
            buffer.fill_(1.0)
    for source in sources:
        torch.cuda.synchronize(source.device)


def row(kind, memory, repetition, size_bytes, times, processor="", threads=""):
    seconds, busy, stolen = times
    moved = size_bytes * (1 if kind == "read" else ADDITION)
    return {"kind": kind, "memory": memory, "processor": processor, "threads": threads, "repetition": repetition,
            "megabytes": round(size_bytes / MEGABYTE), "seconds": f"{seconds:.4e}",
            "gigabytes_per_second": f"{moved / seconds / 1e9:.2f}", "busy_cores": f"{busy:.2f}", "stolen_cores": f"{stolen:.2f}",
            "at": f"{time.monotonic() - BEGAN:.2f}"}


def timed(work):
    """Seconds that it takes, how many cores this process kept busy meanwhile, and how many other guests took."""
    stolen, busy, begin = stolen_seconds(), time.process_time(), time.monotonic()
    work()
    seconds = time.monotonic() - begin
    return seconds, (time.process_time() - busy) / seconds, (stolen_seconds() - stolen) / seconds


def stolen_seconds():
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return int(words[STEAL]) / TICKS


def taken(size_bytes):
    """Float32 memory from the system, shared and unnamed as the ranks' is, every page of it written."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float32).fill_(1.0)


def processors():
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def held(processor):
    """Hold the thread that adds on one processor."""
    everyone = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everyone)


KINDS = {"read": reads, "mean": means, "one": ones}

if __name__ == "__main__":
    main()
