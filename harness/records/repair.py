"""Finds what a campaign's files have lost, so that resuming measures it again.

A line is left out if it is cut, or holds no number where one belongs. A process is left out if its
rows are then not whole: its windows do not follow one another, fewer are timed than asked for, or
its counters end before its windows. A trace that lost a row is left out whole. Nothing here changes
a file.
"""

import csv
import gzip
import io
import json
import math
import shutil
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.records import packed, reader
from analysis.records.columns import TABLES
from analysis.records.reader import Campaign
from analysis.records.text import BadRecords
from harness.records.table import text_of

Row = dict[str, str]
Key = tuple[str, int]  # a trial and the number of its process

TRACES = ("kernels", "operators")
# Failures that are not the framework's: by now the environment may be built, and nobody may kill
# the worker again.
PASSING = ("its environment could not be built", "signal SIGKILL", "signal SIGTERM",
           "signal SIGINT", "signal SIGHUP")
UNREADABLE = (OSError, EOFError, ValueError, csv.Error, zlib.error)
SLACK_SECONDS = 1.0  # slow readings are half a second apart


@dataclass
class Table:
    """The whole rows of a file, and the trials and processes that damaged lines may belong to."""

    header: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    touched: set[tuple[str, str]] = field(default_factory=set)


def mended(folder: Path, columns: Mapping[str, Sequence[str]]) -> tuple[Campaign, dict[Key, str]]:
    """Read the campaign in `folder` without what is damaged, and say what to measure again and why.

    `columns` are those of each table. Raises BadRecords if campaign.json cannot be read.
    """
    campaign, fault = None, BadRecords(f"{folder / 'campaign.json'}: not its first page")
    try:
        campaign = reader.read(folder)
    except BadRecords as error:
        fault = error
    except UNREADABLE as error:
        fault = BadRecords(f"{folder}: its records cannot be read: {error}")
    try:
        meta = json.loads((folder / "campaign.json").read_text(encoding="utf-8-sig"))
        tables = {name: _read(folder / f"{name}.csv", columns[name],
                              {trial["trial"] for trial in meta["trials"]}) for name in columns}
        counted = bool(meta["suite"].get("telemetry") and meta.get("telemetry", {}).get("sources"))
        from_files = {trial["trial"] for trial in meta["trials"] if reader.reads_files(trial)}
        again = {key: f"its rows in {file} were damaged" for key, file
                 in _incomplete(tables, meta["suite"], counted, from_files).items()}
    except (*UNREADABLE, LookupError, TypeError):
        raise fault from None
    again |= _passing(tables["processes"].rows)
    cut = False
    for name in TRACES:
        rows, touched = tables[name].rows, tables[name].touched
        trials = {trial for trial, _ in touched}
        tables[name].rows = [row for row in rows if row["trial"] not in trials]
        cut |= len(rows) != len(tables[name].rows)
    if campaign and not again and not cut:
        return campaign, {}
    with tempfile.TemporaryDirectory(prefix="dlbench-") as whole:
        shutil.copyfile(folder / "campaign.json", Path(whole, "campaign.json"))
        for name, table in tables.items():
            rows = [row for row in table.rows if name in TRACES or _key(row) not in again]
            Path(whole, f"{name}.csv").write_text(text_of(table.header, rows), encoding="utf-8")
        try:
            campaign = reader.read(whole)
        except BadRecords:
            raise fault from None
    order = campaign.processes["order"].rank(method="first").astype(int) - 1
    return replace(campaign, processes=campaign.processes.assign(order=order)), again


def _read(file: Path, columns: Sequence[str], trials: Iterable[str]) -> Table:
    """Read the whole rows of `trials` in a table, gzipped or not."""
    name, known = file.stem, set(trials)
    if not packed.find(file).is_file():
        return Table(columns)
    try:
        text = _text_of(packed.find(file))
        header, *lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))) or [[]]
    except UNREADABLE:
        return Table(columns)
    if not set(header) <= set(columns) or "trial" not in header:
        return Table(columns)
    table, kinds = Table(header), TABLES[name]
    numbers = {column: kinds[column] for column in header if kinds.get(column, str) is not str}
    before_damage = False
    for line in lines:
        row = dict(zip(header, line, strict=False))
        whole = len(line) == len(header) and all(
            _is_number(row[column], kind) for column, kind in numbers.items())
        if whole and row["trial"] in known:
            table.rows.append(row)
            table.touched |= {_place(row)} if before_damage else set()
        else:
            table.touched |= {_place(row), *map(_place, table.rows[-1:])}
        before_damage = not whole
    # A kill cuts the last line of a process that is not finished.
    cells = text[text.rfind("\n") + 1:].split(",")
    table.touched.add(_place(dict(zip(header, cells, strict=False))))
    return table


def _text_of(file: Path) -> str:
    content = file.read_bytes()
    whole = gzip.decompress(content) if file.suffix == packed.SUFFIX else content
    return whole.decode("utf-8-sig", "replace")


def _incomplete(tables: Mapping[str, Table], suite: Mapping[str, Any], counted: bool,
                from_files: Container[str]) -> dict[Key, str]:
    """Return the processes whose rows are not whole, each with the file that lost them.

    `counted` says that processes have counters; trials `from_files` have parts of their own.
    """
    rows = {name: _grouped(table.rows) for name, table in tables.items() if name not in TRACES}
    sources: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for row in tables["counters"].rows:
        sources[row["trial"]].add((row["device"], row["kind"]))
    lost: dict[Key, str] = {}
    for row in tables["processes"].rows:
        key, ok = _key(row), row["status"] == "ok"
        windows = rows["windows"][key]
        # A process that trains to a target has a window an epoch.
        timed = len(rows["accuracy"][key]) if suite.get("until") else int(suite.get("windows", 8))
        if not _follow(windows, timed if ok else None, row["window_steps"]):
            lost[key] = "windows.csv"
        elif counted and ok and (_place(row) in tables["counters"].touched or not _reach(
                rows["counters"][key], windows, sources[key[0]])):
            lost[key] = "counters.csv"
        elif ok and suite.get("phases") and not rows["phases"][key]:
            lost[key] = "phases.csv"
        elif ok and key[0] in from_files and not rows["loading"][key]:
            lost[key] = "loading.csv"
        elif ok and suite.get("mode") == "inference" and not _has_calls(
                rows["latencies"][key], windows):
            lost[key] = "latencies.csv"
        elif ok and len({row["sample"] for row in rows["answers"][key]}) != float(
                row.get("test_samples") or 0):
            lost[key] = "answers.csv"
        elif ok and len(rows["scenarios"][key]) < len(suite.get("scenarios") or ()):
            lost[key] = "scenarios.csv"
        elif ok and _has_rate(rows["scenarios"][key]) and not rows["server"][key]:
            lost[key] = "server.csv"
    return lost


def _has_rate(scenarios: Iterable[Row]) -> bool:
    """Return whether a server's rate was found, so that it was tried."""
    return any(row["scenario"] == "server" and row["samples_per_second"] for row in scenarios)


def _passing(rows: Iterable[Row]) -> dict[Key, str]:
    """Return the failed processes that are worth another try, each with its reason."""
    return {_key(row): row["reason"] for row in rows
            if row["status"] == "failed" and row["reason"].startswith("crashed: ")
            and any(words in row["reason"] for words in PASSING)}


def _place(row: Row) -> tuple[str, str]:
    return row.get("trial", ""), row.get("process", "")


def _key(row: Row) -> Key:
    return row["trial"], int(float(row["process"]))


def _grouped(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[_key(row)].append(row)
    return found


def _follow(rows: list[Row], timed: int | None, length: str) -> bool:
    """Return whether windows begin with the first step and follow one another to the last.

    `timed` is how many are timed, each of `length` steps; None if the process failed.
    """
    done, before = 0.0, -math.inf
    for row in rows:
        window, steps = float(row["window"]), float(row["steps"])
        if window <= before:  # what is before belongs to an attempt that a kill cut off
            done, before = 0.0, -math.inf
        done += steps
        if float(row["last_step"]) != done or (before > -math.inf and window != before + 1):
            return False
        before = window
    if timed is None:
        return True
    last = [row["steps"] for row in rows[-timed:]]
    return before == timed - 1 and len(last) == timed and {*map(float, last)} == {float(length)}


def _has_calls(latencies: list[Row], windows: list[Row]) -> bool:
    """Return whether the timed windows of a process have the time of every call."""
    counts: dict[float, int] = defaultdict(int)
    for row in latencies:
        if not float(row["first"]):  # what is before belongs to an attempt that a kill cut off
            counts[float(row["window"])] = 0
        counts[float(row["window"])] += len(row["nanoseconds"].split())
    return all(counts[float(row["window"])] == float(row["steps"]) for row in windows
               if float(row["window"]) >= 0)


def _reach(counters: list[Row], windows: list[Row], sources: set[tuple[str, str]]) -> bool:
    """Return whether the readings of each source span the windows of a process."""
    begin, end = float(windows[0]["start"]), float(windows[-1]["stop"])
    times = defaultdict(list)
    for row in counters:
        times[row["device"], row["kind"]].append(float(row["seconds"]))
    return bool(times) and sources == set(times) and all(
        each[0] <= begin + SLACK_SECONDS and each[-1] >= end - SLACK_SECONDS
        for each in times.values())


def _is_number(text: str, kind: type) -> bool:
    try:
        value = float(text or "nan")
    except ValueError:
        return False
    return kind is not int or value.is_integer()
