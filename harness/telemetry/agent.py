"""Telemetry of the other nodes that a campaign trains on: one agent a node, started by srun.

`python -m harness.telemetry.agent GPUS` prints a line of JSON twice a second, until its input ends:
what the node's host and its first GPUs say. The driver keeps the newest line of each node. Rows get
the driver's clock as the line is used, for clocks of two nodes have nothing in common.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pynvml

from harness.cluster import allocation
from harness.telemetry.gpu import opened
from harness.telemetry.host import Host

PERIOD_SECONDS = 0.5
# Without a line for so long, an agent counts as silent.
SILENT_SECONDS = 5.0
MODULE = ("-m", "harness.telemetry.agent")


class OfNode:
    """A device of another node, by the newest line of that node's agent."""

    def __init__(self, node: str, device: str, lines: dict[str, tuple[float, dict[str, Any]]]):
        self.name, self.node, self.device, self.lines = f"{node}/{device}", node, device, lines
        self.edges: dict[str, Callable[[float], dict[str, Any]]] = {}
        self.not_measured: list[str] = []
        self.readings: dict[str, Callable[[float], dict[str, Any]]] = {"slow": self.read}

    def restart(self) -> None:
        """Totals go on: an agent outlives the processes that it sees."""

    def describe(self) -> dict[str, Any]:
        return {"device": self.name, "agent": True}

    def read(self, seconds: float) -> dict[str, Any]:
        """Return the newest line's part for this device, or why there is none."""
        heard, line = self.lines.get(self.node, (-SILENT_SECONDS, {}))
        if seconds - heard >= SILENT_SECONDS:
            return {"broken": f"agent: no word from {self.node}"}
        return dict(line.get(self.device, {}))


@contextmanager
def agents(nodes: Sequence[str], gpus: int) -> Iterator[list[OfNode]]:
    """Start an agent on each node while the block runs; yield their hosts and `gpus` GPUs each."""
    if not nodes:
        yield []
        return
    lines: dict[str, tuple[float, dict[str, Any]]] = {}
    command = [*allocation.step_on(nodes), sys.executable, *MODULE, str(gpus)]
    step = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    reader = threading.Thread(target=keep_newest, args=(step.stdout, lines), daemon=True)
    reader.start()
    devices = ["host", *(f"gpu{number}" for number in range(gpus))]
    try:
        yield [OfNode(node, device, lines) for node in nodes for device in devices]
    finally:
        step.terminate()
        try:
            step.wait(SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            step.kill()
            step.wait()
        reader.join(SILENT_SECONDS)
        for stream in (step.stdin, step.stdout):
            if stream:
                stream.close()


def keep_newest(stream: Any, lines: dict[str, tuple[float, dict[str, Any]]],
                clock: Callable[[], float] = time.monotonic) -> None:
    """Keep each node's newest line with the time it came; pass over anything else that is printed.
    """
    for text in stream:
        try:
            found = json.loads(text)
            node, devices = str(found["node"]), dict(found["devices"])
        except (ValueError, KeyError, TypeError):
            continue
        lines[node] = clock(), devices


def main() -> None:
    """Print this node's lines until the driver closes the input."""
    ended = threading.Event()
    threading.Thread(target=_end_with_input, args=(ended,), daemon=True).start()
    gpus = int(sys.argv[1])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with ExitStack() as stack:
            found = stack.enter_context(opened(gpus, visible)) if gpus else []
            _tell([Host(), *found], ended)
    except pynvml.NVMLError:
        _tell([Host()], ended)


def _end_with_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _tell(sources: Sequence[Any], ended: threading.Event) -> None:
    node = os.environ.get("SLURMD_NODENAME", "")
    while not ended.wait(PERIOD_SECONDS):
        devices = {source.name: {key: value for key, value in
                                 source.read_use(time.monotonic()).items() if value is not None}
                   for source in sources}
        print(json.dumps({"node": node, "devices": devices}), flush=True)


if __name__ == "__main__":
    main()
