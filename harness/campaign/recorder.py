"""Writes a campaign's folder: campaign.json, the tables as CSV, and logs/.

docs/reference/records.md describes them. A process counts once its row stands in processes.csv; its
other rows are on disk before. So a campaign that is killed loses only the process that ran.
trials.csv is derived from the other tables and replaced as a whole from time to time and at the
end; `dlbench report` derives it again.
"""

import csv
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records import packed, reader
from analysis.records.columns import TABLES as KINDS
from analysis.records.columns import WHOLE_NUMBERS
from analysis.records.tables import fault_of
from analysis.records.text import BadRecords, one_line
from analysis.traces.kernels import NO_TRACE
from analysis.trials import summary
from harness.campaign.events import Outcome
from harness.errors import WrongUse
from harness.records import repair

SCHEMA = reader.SCHEMA
TABLES: dict[str, Sequence[str]] = {
    name: tuple(columns) for name, columns in KINDS.items()}
# The columns that are kept of a process whose record no reader would accept.
IDENTITY = ("trial", "process", "order", "started", "log")
LONGEST_CELL = 5000
OF_EVERY_CAMPAIGN = ("processes", "windows", "counters")
# The tables of a process, in the order they are written: fields of an `Outcome`.
OF_A_PROCESS = ("counters", "windows", "phases", "latencies", "server", "scenarios", "accuracy",
                "loading", "answers")
# Keys of a suite that change what is measured and that trials do not show.
MEASURES = ("mode", "until", "scenarios", "latency_bound_seconds", "latency_percentile", "weights",
            "processes", "interval", "processes_most", "windows", "window_seconds", "window_steps",
            "seed", "check", "telemetry", "phases", "keep_workers")
SUMMARY_SHARE = 0.05  # of the time at most goes into trials.csv; a hundred rows take seconds
ANOTHER = "or begin another campaign with --out"


class Folder:
    """An open folder of records; its first page says what was measured, where and when."""

    page = "campaign.json"

    def __init__(self, folder: Path):
        self.folder = folder

    def begin(self, page: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Write the files and then the first page. Raises WrongUse if they cannot be written."""
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            for name, text in {**files, self.page: json.dumps(page, indent=1)}.items():
                _replace(self.folder / name, text)
        except OSError as error:
            raise WrongUse(f"{self.folder} cannot be written ({error.strerror}): "
                           "name another folder with --out") from None

    def meta(self) -> dict[str, Any]:
        """Return what the first page says now."""
        text = (self.folder / self.page).read_text(encoding="utf-8-sig")
        meta: dict[str, Any] = json.loads(text)
        return meta

    def add(self, key: str, values: Sequence[str]) -> None:
        """Add new values to a list in the first page."""
        self.update(**{key: list(dict.fromkeys([*self.meta().get(key, []), *values]))})

    def update(self, **fields: Any) -> None:
        """Change fields of the first page."""
        _replace(self.folder / self.page, json.dumps({**self.meta(), **fields}, indent=1))


class Recorder(Folder):
    """The open folder of one campaign."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        super().__init__(folder)
        self.clock = clock
        self.summary_due = -math.inf  # on the clock
        # Says what changed since the campaign began; noted with the next process or trace.
        self.changes: list[str] = []
        # Processes that are measured again on resume, and why.
        self.again: dict[repair.Key, str] = {}
        # Says which damaged tables were mended on resume.
        self.repairs: list[str] = []

    @classmethod
    def create(cls, folder: Path, page: Mapping[str, Any]) -> "Recorder":
        """Start a campaign in `folder`. Raises WrongUse if it holds one or cannot be written."""
        refuse_existing(folder)
        recorder = cls(folder)
        recorder.begin(page, {f"{name}.csv": ",".join(TABLES[name]) + "\n"
                              for name in OF_EVERY_CAMPAIGN})
        return recorder

    @classmethod
    def resume(cls, folder: Path, planned: Sequence[str], now: Mapping[str, Any]) -> "Recorder":
        """Continue the campaign in `folder`; drop rows of unfinished and damaged processes.

        `now` is what its first page would say today of suite, data sets, machine, variables and
        sources. Raises WrongUse if its trials are not `planned`, or if they would be measured
        differently, on other data or elsewhere. Other sources of dlbench are noted with the next
        process. The recorded suite says the most processes that ever got ready at a time.
        """
        try:
            campaign, again = repair.mended(folder, TABLES)
        except BadRecords as error:
            raise WrongUse(str(error)) from None
        if campaign.joined:
            raise WrongUse(f"{folder}: is joined from the campaigns of several nodes; resume "
                           "theirs, then `dlbench join` them again")
        refuse_another(folder, campaign.meta, planned, now)
        packed.unpack_folder(folder)
        recorder = cls(folder)
        before = {(trial, process): why
                  for trial, process, why in campaign.meta.get("repaired", [])}
        recorder.again = {**before, **again}
        if again:
            recorder.update(repaired=[[*key, why] for key, why in recorder.again.items()])
        begun = campaign.meta["suite"]
        most = max(begun["prepare_jobs"], now["suite"]["prepare_jobs"])
        recorder.update(suite={**begun, "prepare_jobs": most})
        if campaign.meta["source_hash"] != now["source_hash"]:
            digest = now["source_hash"][:12]
            recorder.changes = [f"with other sources of dlbench (SHA-256 {digest})"]
        was, here = (page["machine"].get("nodes", []) for page in (campaign.meta, now))
        if was != here:
            recorder.changes.append(f"on {', '.join(here) or 'no cluster'} instead of "
                                    f"{', '.join(was) or 'no cluster'}")
        recorder.keep_damaged(again, not again and campaign.processes.empty)
        for name, columns in TABLES.items():
            file = folder / f"{name}.csv"
            if file.exists() or name in OF_EVERY_CAMPAIGN:
                _replace(file, _text_of(getattr(campaign, name), columns))
        return recorder

    def keep_damaged(self, again: Mapping[repair.Key, str], nothing_finished: bool) -> None:
        """Copy tables that lost processes to logs/, because resuming writes them without those."""
        names = {name for name in TABLES if any(f" {name}.csv " in why for why in again.values())}
        for name in names | ({"processes"} if nothing_finished else set()):
            file = self.folder / f"{name}.csv"
            if file.is_file() and file.read_bytes().count(b"\n") > 1:
                copy = self.folder / "logs" / f"{file.name}.damaged"
                shutil.copyfile(file, copy)
                self.repairs.append(f"{file} was damaged: what it lost is measured again, and "
                                    f"{copy} keeps what it was")

    def finished(self) -> set[tuple[str, int]]:
        """Return the (trial, process) pairs that need not run again."""
        rows = reader.read(self.folder).processes
        return set(zip(rows["trial"], rows["process"].astype(int), strict=True))

    def append(self, outcome: Outcome) -> None:
        """Add a finished process: its own row last, because it makes the others count."""
        self._note_changes()
        process = {key: outcome.row[key] for key in ("trial", "process")}
        outcome.row["node"] = os.environ.get("SLURMD_NODENAME", "")
        if why := self.again.get((process["trial"], process["process"])):
            reasons = [str(outcome.row["reason"]), f"measured again: {why}"]
            outcome.row["reason"] = "; ".join(filter(None, reasons))
        rows = {name: [{**process, **row} for row in getattr(outcome, name)]
                for name in OF_A_PROCESS}
        rows["network"] = [row for row in rows["windows"] if "network_tx_bytes" in row]
        rows["processes"] = [outcome.row]
        if fault := _fault_of(rows):
            kept = {key: outcome.row.get(key, "") for key in IDENTITY}
            rows = {"processes": [{**kept, "status": "failed", "reason": fault}]}
        for table, each in rows.items():
            if each:
                self._add(table, each)
        self._summarise_if_due()

    def untraced(self, trial: str, table: str = "kernels") -> bool:
        """Return whether a trial's first process succeeded and the table has no row of it yet."""
        campaign = reader.read(self.folder)
        rows = campaign.processes
        first = rows[(rows["trial"] == trial) & (rows["process"] == 0)]
        done = set(getattr(campaign, table)["trial"])
        return bool((first["status"] == "ok").any()) and trial not in done

    def append_kernels(self, rows: Sequence[Mapping[str, Any]], table: str = "kernels") -> None:
        """Add a trial's trace, or its profile on a CPU to `operators`."""
        self._note_changes()
        if fault := _fault_of({table: rows}):
            rows = [{"trial": rows[0]["trial"], "class": NO_TRACE, "reason": fault}]
        self._add(table, rows)
        self._summarise_if_due()

    def _note_changes(self) -> None:
        if self.changes:
            self.add("resumed", self.changes)
            self.changes = []

    def _add(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        path, columns = self.folder / f"{table}.csv", TABLES[table]
        if not path.exists():
            _replace(path, ",".join(columns) + "\n")
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
            writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def in_agreement(self) -> Iterator[None]:
        """Leave trials.csv in agreement with the other tables, however the block ends."""
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

    def _summarise_if_due(self) -> None:
        if self.clock() >= self.summary_due:
            self.summarise()


def _fault_of(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Say what no reader would take: a row of it would spoil the whole campaign."""
    found = ((name, fault_of(name, row)) for name, rows in tables.items() for row in rows)
    return next((f"protocol: {name}.csv: {fault}" for name, fault in found if fault), "")


def _cell(value: Any) -> Any:
    """Return what is written of a value: nothing of nan, one line of a text."""
    if isinstance(value, str):
        return one_line(value, LONGEST_CELL)
    return "" if value != value else value


def refuse_existing(folder: Path) -> None:
    """Raise WrongUse if `folder` holds a campaign already."""
    if os.path.lexists(folder / "campaign.json"):
        raise WrongUse(f"{folder} holds a campaign already: go on with --resume, "
                       "or name another folder with --out")


def refuse_missing(folder: Path) -> None:
    """Raise WrongUse if `folder` holds no campaign to go on with."""
    if not os.path.isfile(folder / "campaign.json"):
        raise WrongUse(f"{folder / 'campaign.json'}: no such file; name a folder that "
                       "`dlbench run` wrote, such as results/<campaign>")


def refuse_another(folder: Path, then: Mapping[str, Any], planned: Sequence[str],
                   now: Mapping[str, Any]) -> None:
    """Raise WrongUse if the campaign that began as page `then` would go on as another one."""
    suite, begun = now["suite"], then["suite"]
    remedy = ("resume with the suite and overrides that began this campaign, "
              "or begin another with --out")
    for key in MEASURES:
        # An older campaign lacks the keys that came later.
        if suite[key] != (was := begun.get(key, suite[key])):
            raise WrongUse(f"{folder}: {key} is {suite[key]} now and was {was}: {remedy}")
    for name, source in then["data_sets"].items():
        if (here := now["data_sets"].get(name, "not here")) != source:
            raise WrongUse(f"{folder}: {name} was {source}, and is {here} now: "
                           f"put back what it was, {ANOTHER}")
    for name, file in then.get("weights", {}).items():
        if now["weights"][name] != file:
            raise WrongUse(f"{folder}: weights.{name} had the SHA-256 {file['sha256']}, and "
                           f"{file['file']} is another file now: put back what it was, {ANOTHER}")
    refuse_elsewhere(folder / "campaign.json", then, now)
    if changed := sorted({trial["trial"] for trial in then["trials"]} ^ set(planned)):
        raise WrongUse(f"{folder}: the suite plans other trials now "
                       f"({', '.join(changed[:3])} ...): {remedy}")


def refuse_elsewhere(file: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise WrongUse if the variables, the processor or the GPUs are not those of `file`."""
    if "variables" not in then:
        raise WrongUse(f"{file}: no key variables: nothing says whether it was measured with "
                       "those of today, so it cannot go on: begin another with --out")
    before, present = _place(then), _place(now)
    for key in {**before, **present}:
        was, here = before.get(key, "not set"), present.get(key, "not set")
        if was != here:
            raise WrongUse(f"{file}: {key} was {was}, and is {here} now: "
                           f"put back what it was, {ANOTHER}")


def _place(page: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables and the hardware of a first page, by key."""
    place = {f"variables.{name}": value for name, value in page["variables"].items()}
    place["machine.cpu.model"] = str(page["machine"]["cpu"]["model"])
    for key in ("name", "driver"):
        values = [str(gpu[key]) for gpu in page["machine"]["gpus"]]
        place[f"machine.gpus.{key}"] = ", ".join(values) or "none"
    return place


def _text_of(table: pd.DataFrame, columns: Sequence[str]) -> str:
    whole = {name: pd.to_numeric(table[name]).astype("Int64")
             for name in WHOLE_NUMBERS if name in table}
    return table.assign(**whole)[list(columns)].to_csv(index=False, lineterminator="\n")


def _replace(path: Path, text: str) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    new = path.with_suffix(".new")
    with new.open("w", newline="", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
