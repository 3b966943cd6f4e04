"""What strategies spend their time on where links do not tell: sums on the host by threads, a communication hook by operations, a
step of DistributedDataParallel by its options.

One process a device, so it needs the framework's launcher and an interpreter that has PyTorch:
    torchrun --nproc-per-node 2 scripts/aggregation_parts.py --networks fcn5,alexnet --steps resnet50 --batch 64 > parts.csv
Rank 0 prints a row a part: its least, median and largest seconds over the repetitions, and those of nine in ten.
"""

import argparse
import contextlib
import csv
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))  # torchrun starts it in its own folder

import networks
from analysis.aggregation import overlap
from networks import work
from runners.pytorch import parallel
from runners.pytorch.ddp import BF16Compress, Bucket
from runners.pytorch.host import HostAll
from runners.pytorch.runner import Net

COLUMNS = ("network", "strategy", "threads", "part", "repetitions", "least", "median", "nine_in_ten", "most")
UNSEEN = 5  # repetitions before those that count


@dataclass(frozen=True)
class Task:
    """As much of a runner's task as the strategies ask for."""

    device: str
    rank: int = int(os.environ.get("RANK", 0))
    ranks: int = int(os.environ.get("WORLD_SIZE", 1))
    tuning: str = "stock"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", default="fcn5,alexnet", metavar="NAME,...")
    parser.add_argument("--steps", default="", metavar="NAME,...", help="networks of images, of whose steps to time DDP's options")
    parser.add_argument("--batch", type=int, default=64, help="of each device, in --steps")
    parser.add_argument("--repetitions", type=int, default=30)
    asked = parser.parse_args(words)
    task = Task(asked.device)
    if task.ranks < 2:
        parser.error("one device has nothing to aggregate: start it with torchrun --nproc-per-node 2")
    device = parallel.join(task)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if task.rank == 0:
        writer.writeheader()

    def write(network, found):
        for strategy, threads, times in found:
            for part, seconds in times.items():
                if task.rank == 0:
                    writer.writerow({"network": network, "strategy": strategy, "threads": threads, "part": part, **spread(seconds)})

    for network in map(networks.get, filter(None, asked.networks.split(","))):
        write(network.name, on_the_host(network, task, device, asked.repetitions))
        write(network.name, by_the_hook(network, task, device, asked.repetitions))
    for network in map(networks.get, filter(None, asked.steps.split(","))):
        write(network.name, by_the_options(network, task, device, asked.batch, asked.repetitions))
    dist.destroy_process_group()


def on_the_host(network, task, device, repetitions):
    """Yield how long each part of `host_all` takes, with all threads, half of them and so on."""
    threads = len(os.sched_getaffinity(0))
    while threads:
        strategy = HostAll(parameters_of(network, device), task)
        torch.set_num_threads(threads)
        times = defaultdict(list)
        for repetition in range(UNSEEN + repetitions):
            for name, part in strategy.parts().items():
                begin = time.monotonic()
                part()
                wait(task)  # so a part's time holds what it made the device do
                if repetition >= UNSEEN:
                    times[name].append(time.monotonic() - begin)
        yield "host_all", threads, times
        threads //= 2


def by_the_hook(network, task, device, repetitions):
    """Yield how long the operations of `bf16_compress` take alone, one after another, and as PyTorch's hook."""
    sizes = [int(message.size_bytes) // work.FLOAT_BYTES for message in overlap.gradients(network, 0.0, "bucket")]
    buckets = [Bucket(number, len(sizes), [torch.empty(size, device=device)]) for number, size in enumerate(sizes)]
    halves = [torch.zeros_like(bucket.flat, dtype=torch.bfloat16) for bucket in buckets]

    def reduce():
        for message in [dist.all_reduce(half, async_op=True) for half in halves]:
            message.wait()

    def cast():
        for half, bucket in zip(halves, buckets, strict=True):
            half.copy_(bucket.flat)
            half.div_(task.ranks)

    def restore():
        for half, bucket in zip(halves, buckets, strict=True):
            bucket.flat.copy_(half)

    def hook():
        for message in [BF16Compress.hook(None, bucket) for bucket in buckets]:
            message.wait()

    parts = {"all-reduces": [reduce], "casts": [cast, restore], "one after another": [cast, reduce, restore], "hook": [hook]}
    times = {name: [alone(part, task) for _ in range(UNSEEN + repetitions)][UNSEEN:] for name, part in parts.items()}
    yield "bf16_compress", torch.get_num_threads(), times


def by_the_options(network, task, device, batch, repetitions):
    """Yield how long a training step takes (TF32 allowed), by what DDP is asked to do beside its all-reduce."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    images = torch.randn(batch, *network.input_shape, device=device)
    labels = torch.zeros(batch, dtype=torch.long, device=device)

    def step_of(**options):
        replica = DistributedDataParallel(Net(network.to_json(), False).to(device), **options)
        optimizer = torch.optim.SGD(replica.parameters(), 1e-3, momentum=0.9)

        def step(sent=True):
            with contextlib.nullcontext() if sent else replica.no_sync():
                optimizer.zero_grad()
                F.cross_entropy(replica(images), labels).backward()
                optimizer.step()

        return step

    usual, unsent = step_of(), {"broadcast_buffers": False}
    steps = {"step, nothing sent": lambda: usual(sent=False), "step": usual, "step, buffers not sent": step_of(**unsent),
             "step, buffers not sent, no copies": step_of(**unsent, gradient_as_bucket_view=True)}
    times = defaultdict(list)
    for repetition in range(UNSEEN + repetitions):  # in turn, so that what drifts drifts in all
        for name, step in steps.items():
            seconds = alone([step], task, steps=4)
            if repetition >= UNSEEN:
                times[name].append(seconds)
    yield "ddp", torch.get_num_threads(), times


def alone(part, task, steps=20):
    """Seconds of a part, over some steps that follow each other without a wait, as in a window."""
    parallel.wait_for_all(task)
    begin = time.monotonic()
    for _ in range(steps):
        for operation in part:
            operation()
    wait(task)
    return (time.monotonic() - begin) / steps


def wait(task):
    if task.device == "cuda":
        torch.cuda.synchronize()


def parameters_of(network, device):
    shapes = [shape for layer in network.layers for shape in layer.parameters.values()]
    return [torch.nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]


def spread(seconds):
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {"repetitions": len(ordered), "least": f"{ordered[0]:.3e}", "median": f"{ordered[last // 2]:.3e}",
            "nine_in_ten": f"{ordered[last * 9 // 10]:.3e}", "most": f"{ordered[-1]:.3e}"}


if __name__ == "__main__":
    main()
