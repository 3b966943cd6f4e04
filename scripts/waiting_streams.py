"""What a GPU reads over PCIe though nobody copies: the commands of kernels, and the events that streams wait for.

Needs an NVIDIA GPU that nobody else uses, and an interpreter that has PyTorch and nvidia-ml-py:
    python scripts/waiting_streams.py > waiting_streams.csv
A row a case: NVML's average of 20 ms (nvmlDeviceGetPcieThroughput), averaged over the readings that lie within the case.
CUDA_DEVICE_MAX_CONNECTIONS gives streams another number of hardware queues than the driver's own.
"""

import argparse
import csv
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass

import pynvml
import torch

COLUMNS = ("case", "streams", "connections", "kernels", "seconds", "readings", "received_megabytes_per_second", "bytes_per_kernel")
AVERAGED_SECONDS = 0.02  # before a reading's end, by NVML
KILOBYTE = 1024  # NVML answers in KB/s
SECONDS = 0.15  # of a case
SPIN_CYCLES = 240_000_000  # 0.12 s at 1.98 GHz
LAUNCHED_AT_ONCE = 50
QUEUED_MOST = 1000  # kernels, before the host waits for them
STREAMS = (0, 1, 2, 3, 4, 6, 8, 16, 30)  # that wait; PyTorch has 32


@dataclass(frozen=True)
class Span:
    """When a case ran, and how many kernels it launched."""

    start: float
    stop: float
    kernels: int = 0


class Link:
    """What NVML says of a GPU's PCIe link, read by a thread for as long as this is entered."""

    def __init__(self, handle):
        self.handle = handle
        self.read = []  # (seconds at its end, bytes a second) of each reading
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *reason):
        self.done.set()
        self.thread.join()

    def between(self, start, stop):
        """The readings all of whose averaging lies between two times."""
        return [rate for end, rate in self.read if start <= end - AVERAGED_SECONDS and end <= stop]

    def _watch(self):
        while not self.done.is_set():
            rate = pynvml.nvmlDeviceGetPcieThroughput(self.handle, pynvml.NVML_PCIE_UTIL_RX_BYTES)
            self.read.append((time.monotonic(), rate * KILOBYTE))


class Device:
    """What the GPU is given to do."""

    def __init__(self):
        self.large = torch.zeros(132 * 4096, device="cuda")  # something for every multiprocessor
        self.many = [torch.zeros(1000, device="cuda") for _ in range(161)]  # as many as ResNet-50 has parameters
        self.square = torch.ones(1024, 1024, device="cuda")
        self.pinned = torch.zeros(1000).pin_memory()

    def rest(self):
        start = time.monotonic()
        time.sleep(SECONDS)
        return Span(start, time.monotonic())

    def launch(self, kernel):
        """Launch a kernel as fast as the host can, on the current stream."""
        count, start = 0, time.monotonic()
        while time.monotonic() - start < SECONDS:
            for _ in range(LAUNCHED_AT_ONCE):
                kernel()
            count += LAUNCHED_AT_ONCE
            if count % QUEUED_MOST == 0:
                torch.cuda.current_stream().synchronize()
        torch.cuda.current_stream().synchronize()
        return Span(start, time.monotonic(), count)

    def wait(self, streams, behind):
        """Let streams wait for the event of one that spins, each with work `behind` its wait."""
        self.spin(streams, behind)
        start = time.monotonic()
        torch.cuda.synchronize()
        return Span(start, time.monotonic())

    def launch_beside(self, streams):
        """Launch kernels on a further stream while others wait."""
        self.spin(streams, self.add)
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            return self.launch(lambda: self.large.add_(1))

    def spin(self, streams, behind):
        first, *others = [torch.cuda.Stream() for _ in range(streams + 1)]
        spun = torch.cuda.Event()
        with torch.cuda.stream(first):
            torch.cuda._sleep(SPIN_CYCLES)
            spun.record()
        for number, stream in enumerate(others):
            with torch.cuda.stream(stream):
                stream.wait_event(spun)
                behind(number)

    def add(self, number):
        self.many[number].add_(1)

    def copy(self, number):
        self.many[number].copy_(self.pinned, non_blocking=True)


def cases(device):
    """Name, number of streams that wait, and what to run, of each case."""
    yield "idle", 0, device.rest
    yield "element-wise kernels", 0, lambda: device.launch(lambda: device.large.add_(1))
    yield "kernels for 161 arrays at once", 0, lambda: device.launch(lambda: torch._foreach_add_(device.many, 1.0))
    yield "matrix products", 0, lambda: device.launch(lambda: torch.mm(device.square, device.square))
    for streams in STREAMS:
        yield "waiting, a kernel behind", streams, lambda streams=streams: device.wait(streams, device.add)
    for streams in STREAMS:
        yield "waiting, a copy behind", streams, lambda streams=streams: device.wait(streams, device.copy)
    for streams in STREAMS:
        yield "element-wise kernels beside those that wait", streams, lambda streams=streams: device.launch_beside(streams)


def main(words=None):
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args(words)
    if not torch.cuda.is_available():
        print("scripts/waiting_streams.py: PyTorch sees no GPU; run it where one is", file=sys.stderr)
        sys.exit(2)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    same = {"connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")}
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    with Link(handle) as link:
        for name, streams, run in cases(Device()):
            torch.cuda.synchronize()
            span = run()
            torch.cuda.synchronize()
            time.sleep(AVERAGED_SECONDS)  # the last reading within it ends
            writer.writerow({**same, "case": name, "streams": streams, **received(link, span)})
            sys.stdout.flush()


def received(link, span):
    """What the link received during a case."""
    rates = link.between(span.start, span.stop)
    mean = statistics.fmean(rates) if rates else float("nan")
    seconds = span.stop - span.start
    return {"kernels": span.kernels, "seconds": f"{seconds:.3f}", "readings": len(rates),
            "received_megabytes_per_second": f"{mean / 1e6:.1f}",
            "bytes_per_kernel": f"{mean * seconds / span.kernels:.0f}" if span.kernels else ""}


if __name__ == "__main__":
    main()
