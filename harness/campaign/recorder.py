"""Writes a campaign's folder: campaign.json, the tables as CSV and logs/. docs/reference/records.md says what they hold.

A process counts once its row stands in processes.csv; its windows and counters are on disk before. So a campaign killed at any
moment loses the process that ran, and nothing else. trials.csv is derived from the others and replaced as a whole, now and then
and at the end: of a killed campaign `dlbench report` derives it anew.
"""

import csv
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records import reader
from analysis.trials import summary
from harness.errors import WrongUse

SCHEMA = reader.SCHEMA
PROCESS_COLUMNS = (
    "trial", "process", "order", "status", "reason", "window_steps", "parameters", "check", "check_reason", "loss_error",
    "gradient_error", "trajectory_error", "peak_memory_bytes", "build_seconds", "started", "release", "device_name", "log",
    "copies_error",
)
WHOLE_OR_EMPTY = ("window_steps", "parameters", "peak_memory_bytes", "steps", "window")  # read as floats, for they may be empty
# Keys of a suite that trials do not show.
MEASURES = ("processes", "interval", "processes_most", "windows", "window_seconds", "seed", "check", "telemetry", "phases",
            "keep_workers")
WINDOW_COLUMNS = ("trial", "process", "window", "steps", "last_step", "start", "stop", "seconds", "step_seconds", "loss")
COUNTER_COLUMNS = tuple(reader.COUNTER_COLUMNS)
KERNEL_COLUMNS = tuple(reader.KERNEL_COLUMNS)
PHASE_COLUMNS = tuple(reader.PHASE_COLUMNS)
SUMMARY_SHARE = 0.05  # of a campaign's time at most goes into trials.csv: a hundred rows with their counters take seconds


class Records:
    """The open folder of one campaign."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self.folder = folder
        self.clock = clock
        self.summary_due = -math.inf  # on the clock
        self.changes: list[str] = []  # since the campaign began, that the next process or trace brings into its rows

    @classmethod
    def create(cls, folder: Path, campaign: Mapping[str, Any]) -> "Records":
        """Start a campaign in `folder`; WrongUse where one lies there already or the folder cannot be written."""
        refuse_existing(folder)
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            _write_whole(folder / "campaign.json", json.dumps(campaign, indent=1))
            _write_whole(folder / "processes.csv", ",".join(PROCESS_COLUMNS) + "\n")
            _write_whole(folder / "windows.csv", ",".join(WINDOW_COLUMNS) + "\n")
            _write_whole(folder / "counters.csv", ",".join(COUNTER_COLUMNS) + "\n")
        except OSError as error:
            raise WrongUse(f"{folder} cannot be written ({error.strerror}): name another folder with --out") from None
        return cls(folder)

    @classmethod
    def resume(cls, folder: Path, planned: Sequence[str], now: Mapping[str, Any]) -> "Records":
        """Go on with the campaign in `folder`; drops rows of unfinished processes.

        `now` is what its first page would say of its suite, data sets, machine, variables and sources today. Raises WrongUse where
        its trials are not the planned ones, or where they would be measured otherwise, on other data or elsewhere. Other sources of
        dlbench are noted with the next process. The recorded suite says the most processes that ever got ready at a time.
        """
        suite, sources = now["suite"], now["data_sets"]
        try:
            campaign = reader.read(folder)
        except reader.BadRecords as error:
            raise WrongUse(str(error)) from None
        remedy = "resume with the suite and overrides that began this campaign, or begin another with --out"
        for key in MEASURES:
            if suite[key] != campaign.meta["suite"].get(key, suite[key]):  # an older release did not write all of them
                raise WrongUse(f"{folder}: {key} is {suite[key]} now and was {campaign.meta['suite'].get(key)}: {remedy}")
        for name, source in campaign.meta.get("data_sets", sources).items():
            if sources.get(name) != source:
                raise WrongUse(f"{folder}: {name} was {source}, and is {sources.get(name, 'not here')} now: put back what it was, "
                               "or begin another campaign with --out")
        _refuse_elsewhere(folder / "campaign.json", campaign.meta, now)
        begun = [trial["trial"] for trial in campaign.meta["trials"]]
        if sorted(begun) != sorted(planned):
            changed = sorted(set(begun) ^ set(planned))
            raise WrongUse(f"{folder}: the suite plans other trials now ({', '.join(changed[:3])} ...): {remedy}")
        writer = cls(folder)
        begun_with = campaign.meta["suite"]
        writer.update(suite={**begun_with, "prepare_jobs": max(begun_with.get("prepare_jobs", 1), suite["prepare_jobs"])})
        if campaign.meta.get("source_hash", now["source_hash"]) != now["source_hash"]:
            writer.changes = [f"with other sources of dlbench (SHA-256 {now['source_hash'][:12]})"]
        _write_rows(folder / "processes.csv", PROCESS_COLUMNS, _as_written(campaign.processes), whole=True)
        _write_rows(folder / "windows.csv", WINDOW_COLUMNS, _as_written(campaign.windows), whole=True)
        _write_rows(folder / "counters.csv", COUNTER_COLUMNS, _as_written(campaign.counters), whole=True)
        for name, columns, table in (("kernels.csv", KERNEL_COLUMNS, campaign.kernels),
                                     ("operators.csv", KERNEL_COLUMNS, campaign.operators),
                                     ("phases.csv", PHASE_COLUMNS, campaign.phases)):
            if (folder / name).exists():
                _write_rows(folder / name, columns, _as_written(table), whole=True)
        return writer

    def finished(self) -> set[tuple[str, int]]:
        """The (trial, process) pairs that need not run again."""
        rows = reader.read(self.folder).processes
        return set(zip(rows["trial"], rows["process"].astype(int), strict=True))

    def append(self, process: Mapping[str, Any], windows: Sequence[Mapping[str, Any]],
               counters: Sequence[Mapping[str, Any]] = (), phases: Sequence[Mapping[str, Any]] = ()) -> None:
        """Add a finished process: first its windows, counters and phases, then the row that makes them count."""
        self._note_changes()
        whose = {"trial": process["trial"], "process": process["process"]}
        _write_rows(self.folder / "counters.csv", COUNTER_COLUMNS, [{**whose, **counter} for counter in counters])
        _write_rows(self.folder / "windows.csv", WINDOW_COLUMNS, windows)
        if phases:
            self._add("phases.csv", PHASE_COLUMNS, phases)
        _write_rows(self.folder / "processes.csv", PROCESS_COLUMNS, [process])
        self._summarise_where_due()

    def untraced(self, trial: str, table: str = "kernels") -> bool:
        """Whether the trial's first process ended well and kernels.csv, or operators.csv, says nothing of the trial yet."""
        campaign = reader.read(self.folder)
        first = campaign.processes[(campaign.processes["trial"] == trial) & (campaign.processes["process"] == 0)]
        return bool((first["status"] == "ok").any()) and trial not in set(getattr(campaign, table)["trial"])

    def append_kernels(self, rows: Sequence[Mapping[str, Any]], table: str = "kernels") -> None:
        """Add a trial's trace, or its profile on a CPU to `operators`."""
        self._note_changes()
        self._add(f"{table}.csv", KERNEL_COLUMNS, rows)
        self._summarise_where_due()

    def _note_changes(self) -> None:
        if self.changes:
            self.add("resumed", self.changes)
            self.changes = []

    def _add(self, file: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a file that not every campaign has."""
        path = self.folder / file
        if not path.exists():
            _write_whole(path, ",".join(columns) + "\n")
        _write_rows(path, columns, rows)

    @contextmanager
    def in_agreement(self) -> Iterator[None]:
        """Leave trials.csv in agreement with the other tables, however the processes inside end."""
        try:
            yield
        finally:
            self.summarise()

    def summarise(self) -> None:
        """Derive trials.csv."""
        began = self.clock()
        summary.rewrite(self.folder)
        done = self.clock()
        self.summary_due = done + (done - began) / SUMMARY_SHARE

    def _summarise_where_due(self) -> None:
        if self.clock() >= self.summary_due:
            self.summarise()

    def meta(self) -> dict[str, Any]:
        """What campaign.json says now."""
        meta: dict[str, Any] = json.loads((self.folder / "campaign.json").read_text(encoding="utf-8"))
        return meta

    def add(self, key: str, values: Sequence[str]) -> None:
        """Add to a list in campaign.json what it does not hold yet."""
        held = json.loads((self.folder / "campaign.json").read_text()).get(key, [])
        self.update(**{key: list(dict.fromkeys([*held, *values]))})

    def update(self, **fields: Any) -> None:
        """Change fields of campaign.json."""
        _write_whole(self.folder / "campaign.json", json.dumps({**self.meta(), **fields}, indent=1))


def refuse_existing(folder: Path) -> None:
    """Raise WrongUse where `folder` holds a campaign already."""
    if (folder / "campaign.json").exists():
        raise WrongUse(f"{folder} holds a campaign already: go on with --resume, or name another folder with --out")


def _refuse_elsewhere(file: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise WrongUse where the variables that tell, the processor or the GPUs are not those of `file`.

    What an older release did not write is not compared.
    """
    changes = []
    if "variables" in then:
        was, here = then["variables"], now["variables"]
        changes = [(f"variables.{name}", was.get(name, "not set"), here.get(name, "not set")) for name in sorted({*was, *here})]
    hardware = _hardware(now["machine"])
    changes += [(key, was, hardware.get(key, "not told")) for key, was in _hardware(then.get("machine", {})).items()]
    for key, before, present in changes:
        if before != present:
            raise WrongUse(f"{file}: {key} was {before}, and is {present} now: put back what it was, "
                           "or begin another campaign with --out")


def _hardware(machine: Mapping[str, Any]) -> dict[str, str]:
    """What of a machine stays as it is from one day to the next, by key."""
    found = {"machine.cpu.model": str(machine["cpu"]["model"])} if "model" in machine.get("cpu", {}) else {}
    for key in ("name", "driver"):
        if "gpus" in machine and all(key in gpu for gpu in machine["gpus"]):
            found[f"machine.gpus.{key}"] = ", ".join(str(gpu[key]) for gpu in machine["gpus"]) or "none"
    return found


def _as_written(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    for row in rows:
        row.update({key: int(row[key]) for key in WHOLE_OR_EMPTY if key in row and row[key] == row[key]})
    return rows


def _write_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], whole: bool = False) -> None:
    target = path.with_suffix(".new") if whole else path
    with target.open("w" if whole else "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", restval="", lineterminator="\n")
        if whole:
            writer.writeheader()
        writer.writerows({key: "" if value != value else value for key, value in row.items()} for row in rows)
        file.flush()
        os.fsync(file.fileno())
    if whole:
        target.replace(path)


def _write_whole(path: Path, text: str) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
