"""The aggregation study: transfers of growing size on the links between devices, into links.csv.

A group is a number of devices on one wire. The wire `default` is what the library chooses (NVLink
if there is one); `p2p_off` forbids direct transfers between GPUs, so that data goes through host
memory; `nodes` joins several nodes. A link that does not exist is a row with its reason.
"""

import csv
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.records import reader
from analysis.records.study_reader import HOST_SUMS, LINK_COLUMNS, NODES, OWN_SUMS, WIRED
from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.campaign.process import now
from harness.campaign.session import Plan, Session
from harness.environments.store import BuildFailed, Environment
from harness.errors import WrongUse
from harness.machine import hardware
from harness.machine.preflight import pass_gate
from harness.plan.planner import Trial
from harness.records import lock
from harness.studies import own_sums, study
from harness.studies.recorder import StudyRecorder
from harness.workers.launch import start, task_of
from harness.workers.worker import Failed, Unsupported

MODULE = "runners.studies.links"
WIRES: Mapping[str, Mapping[str, str]] = {"default": {}, "p2p_off": {"NCCL_P2P_DISABLE": "1"},
                                          NODES: {}}
# 63 x 63 floats. Gloo takes up to twice as long for exactly 256 or 512 KiB as for a little more
# (two nodes, 1 Gbit/s, torch 2.13), and gradients are hardly ever a power of two.
SMALLEST_BYTES, GROWTH = 4 * 63**2, 4
LARGEST_MIB = {"cpu": 64, "cuda": 256}
START_SECONDS, TRANSFER_SECONDS = 300.0, 120.0

# Whose links are fitted; of other frameworks only their own sums over nodes.
FITTED = "pytorch"

Row = dict[str, Any]
OwnSum = Callable[["Effort", Path], Iterator[Row]]


@dataclass(frozen=True)
class Effort:
    """How much is measured. Sizes start at `SMALLEST_BYTES` and grow by the factor `GROWTH`.

    Only `links` are measured where some are named.
    """

    processes: int = 3
    windows: int = 5
    window_seconds: float = 0.02
    largest_bytes: int = 2**28
    seed: int = 1
    links: tuple[str, ...] = ()

    def sizes(self, link: str) -> list[int]:
        """Return the sizes of the transfers.

        Host sums get one more size, because the sum of n buffers of S bytes counts as n + 1/3 times
        as many bytes.
        """
        growths = math.log(self.largest_bytes / SMALLEST_BYTES, GROWTH)
        count = 1 + int(growths + 1e-9) + (link in HOST_SUMS)
        return [SMALLEST_BYTES * GROWTH**number for number in range(count)]


@dataclass(frozen=True)
class Group:
    """A number of devices on one wire; `trial` states the devices, their threads and ranks."""

    wire: str
    trial: Trial

    @property
    def name(self) -> str:
        whose = "" if self.trial.framework == FITTED else f"{self.trial.framework}, "
        return f"{whose}{self.trial.devices} x {self.trial.device_kind}, {self.wire}"


def plan(devices: str, device: str, interpreters: Mapping[str, Path], allow_dirty: bool,
         effort: Mapping[str, Any], nodes: int = 1, campaigns: Sequence[Path] = ()) -> Plan:
    """Plan a trial of PyTorch for each number of devices; by default 1, 2, 4 ... of those here.

    With several `nodes` each number is also one of each node, and other frameworks that trained on
    them in `campaigns` get trials too.
    """
    others = {trial["framework"] for folder in campaigns for trial in reader.read(folder).trials
              if trial.get("nodes", 1) > 1} & set(OWN_SUMS) if nodes > 1 else set()
    machine = hardware.describe()
    gpus = campaign.choose_device(device, machine) == "cuda"
    here = len(machine["gpus"]) if gpus else len(os.sched_getaffinity(0))
    counts = devices or ",".join(str(2**power) for power in range(max(1, here).bit_length()))
    try:
        planned = study.plan([FITTED, *sorted(others)], device, interpreters, allow_dirty,
                             title="Links", devices=[int(count) for count in counts.split(",")],
                             nodes=sorted({1, nodes}), **effort)
    except ValueError:
        raise WrongUse(f"--devices {devices}: write whole numbers with commas, as in 1,2,4"
                       ) from None
    if not any(trial.framework == FITTED for trial in planned.planned):
        reasons = "; ".join(dict.fromkeys(trial.reason for trial in planned.trials))
        raise WrongUse(f"no group of devices can be measured here: {reasons}; "
                       "choose others with --devices and --device")
    return planned


def run(planned: Plan, effort: Effort, folder: Path, listener: Listener) -> None:
    """Measure the links of every group of devices into `folder`."""
    recorder = StudyRecorder(folder)
    settings = {"devices": [trial.devices for trial in planned.trials],
                "largest_mib": effort.largest_bytes // 2**20}
    with lock.held(folder):
        dirty = pass_gate(planned.machine, planned.gpus, planned.allow_dirty)
        with Session.open(planned, listener, folder / "logs") as session:
            recorder.begin({**campaign.first_page(planned, folder, session.environments),
                            "study": "aggregation", "effort": asdict(effort), "settings": settings,
                            "dirty": dirty}, {})
            groups = groups_of(planned.trials)
            environment = session.environment(
                next(each for each in planned.planned if each.framework == FITTED))
            own = {group: partial(own_sums.sweep, group.trial, session.environment(group.trial),
                                  session.inputs)
                   for group in groups
                   if group.trial.framework != FITTED and group.trial.status != "unsupported"}
            sweep(groups, environment, effort, folder, listener.note, own)
        recorder.update(finished=now())


def groups_of(trials: Sequence[Trial]) -> list[Group]:
    """List the groups of each number of devices; without GPUs a node has one wire.

    A framework that is not fitted has groups between nodes only.
    """
    on_one = [trial for trial in trials if trial.nodes == 1 and trial.framework == FITTED]
    found = [Group(wire, trial) for trial in on_one for wire in ("default", "p2p_off")
             if wire == "default" or (trial.device_kind == "cuda" and trial.devices > 1)]
    return found + [Group(NODES, trial) for trial in trials if trial.nodes > 1]


def sweep(groups: Sequence[Group], environment: Environment | BuildFailed, effort: Effort,
          folder: Path, note: Callable[[str], None], own: Mapping[Group, OwnSum] | None = None
          ) -> None:
    """Measure every group in each process, in a new random order; rows are on disk as they come.

    Groups of `own` are other frameworks' sums over nodes.
    """
    own = own or {}
    with (folder / "links.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(LINK_COLUMNS), restval="", lineterminator="\n")
        writer.writeheader()
        order = random.Random(effort.seed)
        for process in range(effort.processes):
            for group in order.sample(groups, len(groups)):
                note(f"links of {group.name}: process {process + 1} of {effort.processes}")
                devices = group.trial.devices
                whose = "" if group.trial.framework == FITTED else f"{group.trial.framework}-"
                log = folder / "logs" / f"{whose}{group.wire}-{devices}-{process}.log"
                for row in (own[group](effort, log) if group in own else
                            measure(group, environment, effort, log)):
                    writer.writerow({"wire": group.wire, "devices": devices, "process": process,
                                     **row})
                    file.flush()


def measure(group: Group, environment: Environment | BuildFailed, effort: Effort, log: Path
            ) -> Iterator[Row]:
    """Yield a row for each window of each link, or one with the reason if it cannot be measured."""
    if group.trial.status == "unsupported":
        yield {"link": "", "status": "unsupported", "reason": group.trial.reason}
        return
    try:
        with start(environment, group.trial, log, MODULE, WIRES[group.wire]) as worker:
            worker.ask("hello", START_SECONDS)
            task = {key: value for key, value in task_of(group.trial).items() if key != "strategy"}
            for link, refusal in worker.ask("open", START_SECONDS, **task)["links"].items():
                apart = group.wire != "default" and link not in WIRED
                if apart or (effort.links and link not in effort.links):
                    continue
                if refusal:
                    yield {"link": link, "status": "unsupported", "reason": refusal}
                    continue
                for size_bytes in effort.sizes(link):
                    timed = partial(worker.ask, "transfer", TRANSFER_SECONDS, link=link,
                                    size_bytes=size_bytes)
                    for row in own_sums.windows(timed, effort):
                        yield {"link": link, "status": "ok", "bytes": size_bytes, **row}
    except (Failed, Unsupported) as error:
        yield {"link": "", **study.refusal(error)}
