"""Synthetic campaigns: records as the driver writes them, with known truths, for the tests to read and to plant faults in.

`make_records` draws a campaign of PyTorch and TensorFlow; `Records.write` puts it into a folder. A test changes the plain rows
in between.
"""

import csv
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.records import reader
from analysis.records.columns import (
    COUNTER_COLUMNS,
    LATE,
    PHASE_COLUMNS,
    PROCESS_COLUMNS,
    WINDOW_COLUMNS,
)

NETWORKS = {  # name: parameters, batches, seconds a step of the first batch, first loss, dropout
    "fcn5": (14_205_962, (512, 1024, 2048), 0.110, 2.49, False),
    "alexnet_cifar": (85_098, (128,), 0.062, 2.39, False),
    "resnet56": (853_018, (16,), 0.190, 2.97, False),
    "lstm32": (6_180_624, (16,), 0.420, 9.21, False),
}
RELEASES = {"pytorch": "2.13.0", "tensorflow": "2.21.0"}
SPEED = {("pytorch", "fcn5"): 1.0, ("pytorch", "alexnet_cifar"): 1.0, ("pytorch", "resnet56"): 1.0, ("pytorch", "lstm32"): 1.0,
         ("tensorflow", "fcn5"): 1.004, ("tensorflow", "alexnet_cifar"): 0.8, ("tensorflow", "resnet56"): 1.43,
         ("tensorflow", "lstm32"): 1.15}
WINDOWS = 5
PROCESSES = 5


@dataclass
class Records:
    """A campaign's files as lists of rows."""

    meta: dict[str, Any]
    processes: list[dict[str, Any]]
    windows: list[dict[str, Any]]
    counters: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "campaign.json").write_text(json.dumps(self.meta, indent=1))
        for name, columns, rows in (("processes.csv", PROCESS_COLUMNS, self.processes),
                                    ("windows.csv", WINDOW_COLUMNS, self.windows),
                                    ("counters.csv", COUNTER_COLUMNS, self.counters),
                                    ("phases.csv", PHASE_COLUMNS, self.phases)):
            if name in ("counters.csv", "phases.csv") and not rows:
                continue  # as in campaigns before there was telemetry, or of suites without phases
            # Late columns are those of today's campaigns only.
            written = [column for column in columns if column not in LATE["processes"] or any(column in row for row in rows)]
            with (folder / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, written, restval="", lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        return folder

    def add_trial(self, framework: str, network: str, batch: int, **changes: Any) -> str:
        """Add a trial with all its processes and return its name; `changes` are fields of the trial, `slower` and `processes`."""
        parameters, batches, first, _, dropout = NETWORKS[network]
        slower, count = changes.pop("slower", SPEED.get((framework, network), 1.0)), changes.pop("processes", PROCESSES)
        trial = {
            "framework": framework, "release": RELEASES.get(framework, "1.0"), "network": network, "batch": batch, "devices": 1,
            "device_kind": "cpu", "threads": 2, "precision": "fp32", "tuning": "stock", "data": "device", "learning_rate": 0.05,
            "parameters": parameters, "flops_per_step": 6 * parameters * batch, "processes_planned": count, "dropout": dropout,
            "strategy": "", "global_batch": batch * changes.get("devices", 1), "status": "planned", "reason": "", **changes,
        }
        trial["trial"] = "-".join(str(trial[key]) for key in ("framework", "release", "network", "batch", "precision", "tuning"))
        if trial["devices"] > 1:
            trial["trial"] += f"-x{trial['devices']}-{trial.get('strategy', '')}"
        if any(other["trial"] == trial["trial"] for other in self.meta["trials"]):
            trial["trial"] += f"-{trial['device_kind']}"
        self.meta["trials"].append(trial)
        if trial["status"] == "planned":
            for process in range(count):
                _add_process(self, trial, process, first * batch / batches[0] * slower)
        return trial["trial"]

    def prove_each_process(self, rate: float = 0.03, frozen: float = 1e-3, gradient: float = 0.06) -> None:
        """Prove every process, as campaigns do whose processes prove the step that they time."""
        for row in self.processes:
            row.update(check="same", proof_seconds=1.5, proof_rate_error=rate, proof_frozen_share=frozen,
                       proof_gradient_error=gradient)

    def put_on_a_gpu(self, **held: int) -> None:
        """Let all trials run on a GPU, where process k of a framework holds these bytes and k MiB."""
        for trial in self.meta["trials"]:
            trial["device_kind"] = "cuda"
            for row in self.processes_of(trial["trial"]):
                if trial["framework"] in held:
                    row["device_memory_bytes"] = held[trial["framework"]] + row["process"] * 2**20

    def trial(self, name: str) -> dict[str, Any]:
        return next(trial for trial in self.meta["trials"] if trial["trial"] == name)

    def processes_of(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.processes if row["trial"] == name]

    def windows_of(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.windows if row["trial"] == name]


def make_records(seed: int = 1, processes: int = PROCESSES, networks: tuple[str, ...] = tuple(NETWORKS)) -> Records:
    """Draw a campaign: two frameworks, the smoke suite's networks, one precision, no faults."""
    made = Records(_meta(seed), [], [])
    for network in networks:
        for batch in NETWORKS[network][1]:
            for framework in RELEASES:
                made.add_trial(framework, network, batch, processes=processes)
    return made


def _loss_at(network: str, step: int) -> float:
    """A training's smooth loss curve, the same in every framework."""
    return NETWORKS[network][3] * (0.12 + 0.88 * float(np.exp(-((step - 1) / 60) ** 0.8)))


def _add_process(made: Records, trial: dict[str, Any], process: int, step_seconds: float) -> None:
    rng = np.random.default_rng([zlib.crc32(trial["trial"].encode()), process])
    mine = step_seconds * np.exp(0.03 * rng.standard_normal())  # processes differ ten times as much as their windows
    clock, last, length = 1000.0 + 60 * len(made.processes), 0, 1
    lengths = [1] * 8
    while length * mine < 0.3 or length == 1:
        length *= 2
        lengths.append(length)
    warmups = len(lengths)
    for number, steps in enumerate(lengths + [length] * WINDOWS):
        seconds = steps * mine * float(np.exp(0.003 * rng.standard_normal())) * (4 if number == 0 else 1)
        last += steps
        loss = _loss_at(trial["network"], last) * (1 + 1e-7 * rng.standard_normal())
        made.windows.append({
            "trial": trial["trial"], "process": process, "window": number - warmups, "steps": steps, "last_step": last,
            "start": clock, "stop": clock + seconds, "seconds": seconds, "step_seconds": seconds / steps, "loss": loss,
        })
        clock += seconds
    made.processes.append({
        "trial": trial["trial"], "process": process, "order": len(made.processes), "status": "ok", "reason": "",
        "window_steps": length, "parameters": trial["parameters"], "check": "" if process else "same", "check_reason": "",
        "loss_error": "" if process else 4e-8, "gradient_error": "" if process else 6e-7,
        "trajectory_error": "" if process else 9e-6,
        "peak_memory_bytes": 350 * 2**20 + 20 * trial["parameters"] + 40_000 * trial["batch"], "build_seconds": 1.2,
        "started": "2026-11-21T07:00:00+00:00", "release": trial["release"], "device_name": "",
        "log": f"logs/{len(made.processes)}.log",
    })


def _meta(seed: int) -> dict[str, Any]:
    environments = {name: {"framework": name, "release": release, "python": "3.11.2", "device": "cpu", "key": "0f3a",
                           "packages": [f"{name}=={release}", "numpy==2.3.5"]} for name, release in RELEASES.items()}
    return {
        "schema": 1, "name": "smoke", "started": "2026-11-21T07:00:00+00:00", "finished": "2026-11-21T07:21:00+00:00",
        "dlbench": "1.0.0", "git_commit": "bb5b10f0c0ffee", "git_dirty": False,
        "suite": {"title": "A first look", "processes": 5},
        "suite_file": "configs/smoke.yaml", "seed": seed,
        "concerns": ["2 cores: the driver, the worker and the system share them"],
        "machine": {"cpu": {"model": "Example CPU @ 2.10GHz", "physical": 1, "logical": 2}, "memory": {"total_bytes": 16 * 2**30},
                    "gpus": [], "system": {"os": "Debian GNU/Linux 12", "kernel": "6.1", "architecture": "x86_64"}},
        "environments": environments, "trials": [],
    }


@pytest.fixture(scope="session")
def draw_records() -> Callable[..., Records]:
    return make_records


@pytest.fixture
def made() -> Records:
    """A campaign without faults of one network in two frameworks."""
    return make_records(networks=("alexnet_cifar",))


@pytest.fixture(scope="session")
def smoke() -> Records:
    """The whole smoke campaign with a refused row and two failed ones. Shared: do not change it."""
    made = make_records()
    made.add_trial("pytorch", "resnet56", 16, precision="bf16", status="unsupported",
              reason="the processor has no bf16 instructions")
    crashed = made.add_trial("tensorflow", "lstm32", 64, status="planned", processes=3)
    for row in made.processes_of(crashed):
        row.update(status="failed", reason="out_of_memory: OOM when allocating 2.6 GB", parameters="", check="")
    made.windows = [row for row in made.windows if row["trial"] != crashed]
    hung = made.processes_of("tensorflow-2.21.0-alexnet_cifar-128-fp32-stock")[3]
    hung.update(status="failed", reason="timed_out: no answer for 600 s")
    return made


@pytest.fixture
def campaign(made: Records, tmp_path: Path) -> reader.Campaign:
    return reader.read(made.write(tmp_path / "campaign"))
