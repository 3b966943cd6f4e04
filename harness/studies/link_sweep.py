"""Sweeps the links of a machine for `dlbench study aggregation`: transfers of growing size, in groups of ranks, into links.csv.

A group is so many devices on one wire: `default` is what the library chooses (NVLink where there is one), `p2p_off` forbids GPUs to
reach each other directly, so that host memory stands between them. A link that is not there is a row with its reason.
"""

import csv
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.aggregation.links import COLUMNS, HOST_SUMS, WIRED
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Trial
from harness.workers.launch import start, task_of
from harness.workers.worker import Failed, Unsupported, Worker

MODULE = "runners.studies.links"
WIRES: Mapping[str, Mapping[str, str]] = {"default": {}, "p2p_off": {"NCCL_P2P_DISABLE": "1"}}
SMALLEST_BYTES, GROWTH = 2**14, 4
START_SECONDS, TRANSFER_SECONDS = 300.0, 120.0
PILOTS = 3

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is measured; `largest_bytes` ends the sweep, which starts at `SMALLEST_BYTES` and grows by `GROWTH`."""

    processes: int = 3
    windows: int = 5
    window_seconds: float = 0.02
    largest_bytes: int = 2**28
    seed: int = 1

    def sizes(self, link: str) -> list[int]:
        """The transfers' sizes; one more for the sum of n buffers of S bytes, which counts as n + 1/3 times as many."""
        count = 1 + int(math.log(self.largest_bytes / SMALLEST_BYTES, GROWTH) + 1e-9) + (link in HOST_SUMS)
        return [SMALLEST_BYTES * GROWTH**number for number in range(count)]


@dataclass(frozen=True)
class Group:
    """So many devices on one wire. `trial` stands for them: it says kind of device, threads and ranks."""

    wire: str
    trial: Trial

    @property
    def name(self) -> str:
        return f"{self.trial.devices} x {self.trial.device_kind}, {self.wire}"


def groups_of(trials: list[Trial]) -> list[Group]:
    """List the groups of these trials, one for each number of devices; without GPUs there is one wire."""
    return [Group(wire, trial) for trial in trials for wire in WIRES
            if wire == "default" or (trial.device_kind == "cuda" and trial.devices > 1)]


def sweep(groups: list[Group], environment: Environment | BuildFailed, effort: Effort, folder: Path,
          note: Callable[[str], None]) -> None:
    """Measure every group in so many processes, in an order shuffled anew for each round; rows are on disk as they come."""
    with (folder / "links.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        order = random.Random(effort.seed)
        for process in range(effort.processes):
            for group in order.sample(groups, len(groups)):
                note(f"links of {group.name}: process {process + 1} of {effort.processes}")
                told = {"wire": group.wire, "devices": group.trial.devices, "process": process}
                log = folder / "logs" / f"{group.wire}-{group.trial.devices}-{process}.log"
                for row in measure(group, environment, effort, log):
                    writer.writerow({**told, **row})
                    file.flush()


def measure(group: Group, environment: Environment | BuildFailed, effort: Effort, log: Path) -> Iterator[Row]:
    """Yield a row for each window of each link of a group, or one with the reason where a link or the group cannot be measured."""
    if group.trial.status == "unsupported":
        yield {"link": "", "status": "unsupported", "reason": group.trial.reason}
        return
    try:
        with start(environment, group.trial, log, MODULE, WIRES[group.wire]) as worker:
            worker.ask("hello", START_SECONDS)
            task = {key: value for key, value in task_of(group.trial).items() if key != "strategy"}
            for link, refusal in worker.ask("open", START_SECONDS, **task)["links"].items():
                if group.wire != "default" and link not in WIRED:
                    continue
                if refusal:
                    yield {"link": link, "status": "unsupported", "reason": refusal}
                    continue
                for size_bytes in effort.sizes(link):
                    yield from _windows(worker, link, size_bytes, effort)
    except (Failed, Unsupported) as error:
        yield {"link": "", "status": "failed" if isinstance(error, Failed) else "unsupported", "reason": str(error)}


def _windows(worker: Worker, link: str, size_bytes: int, effort: Effort) -> Iterator[Row]:
    """Time the windows of one size; the shortest of a few pilots of one transfer says how many fill a window."""
    pilots = [worker.ask("transfer", TRANSFER_SECONDS, link=link, size_bytes=size_bytes, steps=1) for _ in range(PILOTS)]
    steps = max(1, math.ceil(effort.window_seconds / min(pilot["stop"] - pilot["start"] for pilot in pilots)))
    for window in range(effort.windows):
        answer = worker.ask("transfer", TRANSFER_SECONDS, link=link, size_bytes=size_bytes, steps=steps)
        yield {"link": link, "status": "ok", "window": window, "bytes": size_bytes, "steps": answer["steps"],
               "start": answer["start"], "stop": answer["stop"],
               "seconds": answer["stop"] - answer["start"] - answer["idle_seconds"]}
