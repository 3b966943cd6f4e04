"""Reads a study's folder: study.json, points.csv (what was computed) and measurements.csv.

A row of measurements.csv is a candidate at a point in a process; docs/reference/records.md defines
the columns. Estimates are made as for campaigns: over processes first, then over the windows of
each.
"""

import csv
import io
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records import packed, pages
from analysis.records.tables import read_table
from analysis.records.text import BadRecords
from analysis.statistics import bootstrap

SCHEMA = 1
MEASUREMENT_COLUMNS = ("bench", "process", "point", "candidate", "status", "reason", "error",
                       "workspace_bytes", "rank", "operations", "steps", "seconds", "errors",
                       "kernels")
# Studies of earlier releases lack these.
LATE = ("errors", "kernels")
LINK_COLUMNS: Mapping[str, type] = {
    "wire": str, "devices": int, "process": int, "link": str, "status": str, "reason": str,
    "window": float, "bytes": float, "steps": float, "start": float, "stop": float,
    "seconds": float}
# Links between devices; the others stay within one device or its host.
WIRED = ("send", "shift", "pair", "fan_in", "fan_out", "swap", "all_reduce")
# The wire between nodes.
NODES = "nodes"
# Frameworks whose own sum over nodes is swept beside PyTorch's links.
OWN_SUMS = ("jax", "tensorflow", "paddle")
# Those that send tensor after tensor; the others pack all into one message.
ONE_BY_ONE = ("jax",)
HOST_SUMS = ("host_sum_one", "host_sum_all")
LINKS = (*WIRED, "to_host", "from_host", *HOST_SUMS, "device_sum", "device_copy", "bit_pack",
         "bit_unpack")
NUMBERS = ("error", "workspace_bytes", "rank", "operations", "steps")
KEY = ["bench", "point", "candidate"]
ESTIMATES = [*KEY, "status", "reason", "seconds", "seconds_low", "seconds_high", "error",
             "workspace_bytes", "rank", "processes"]
STATUSES = ("ok", "unsupported", "failed", "different")


def own_sum(framework: str) -> str:
    """Name the link that is a framework's own sum over nodes."""
    return f"{framework}_all_reduce"


@dataclass(frozen=True)
class Records:
    """One study. `points` has the point's name as index; a row's `seconds` are its windows."""

    folder: Path
    meta: dict[str, Any]
    points: pd.DataFrame
    measurements: pd.DataFrame

    def setting(self, name: str) -> Any:
        """Return what the study was told. Raises BadRecords if its page does not say."""
        if name not in self.meta.get("settings", {}):
            raise BadRecords(f"{self.folder / 'study.json'}: no key settings.{name}; restore the "
                             "file from a copy or run the study again")
        return self.meta["settings"][name]


def read(folder: Path) -> Records:
    """Read a study. Raises BadRecords if a file is missing or holds something else."""
    meta = read_page(folder)
    # Typed by what stands there: each study has columns of its own.
    read_table(folder / "points.csv", {"point": str})
    points = pd.read_csv(io.StringIO(packed.read_text(folder / "points.csv")), index_col="point",
                         keep_default_na=False)
    file = folder / "measurements.csv"
    kinds = {name: int if name == "process" else str for name in MEASUREMENT_COLUMNS}
    table = read_table(file, kinds, LATE)
    table = table.assign(**{name: "" for name in LATE if name not in table})
    for name in NUMBERS:
        table[name] = pd.to_numeric(table[name], errors="coerce")
    try:
        seconds = [np.array(text.split(), float) for text in table["seconds"]]
    except ValueError as error:
        raise BadRecords(f"{file}: column seconds: {error}; restore it from a copy") from None
    table["seconds"] = pd.Series(seconds, dtype=object)
    return Records(folder, meta, points, table[list(MEASUREMENT_COLUMNS)])


def read_page(folder: Path) -> dict[str, Any]:
    """Read a study's first page. Raises BadRecords if it is missing or holds something else."""
    return pages.read_first(folder / "study.json", "name a folder that `dlbench study` wrote",
                            SCHEMA, pages.StudyPage)


def finished(folder: Path) -> set[tuple[str, int, str]]:
    """Return the (bench, process, point) that are measured; cut off a point left unfinished."""
    file = folder / "measurements.csv"
    rows = _rows(file)
    text = file.read_text(encoding="utf-8")
    if rows and not text.endswith("\n"):
        last = _identity(rows[-1])
        rows = [row for row in rows if _identity(row) != last]
        with file.open("w", newline="", encoding="utf-8") as target:
            writer = csv.DictWriter(target, MEASUREMENT_COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return {_identity(row) for row in rows}


def estimates(records: Records) -> pd.DataFrame:
    """Reduce measurements to a row for each bench, point and candidate, with the point's columns.

    `seconds` are of one operation, with `seconds_low` and `seconds_high` (nan below three
    processes). `status` and `reason` are those of the first process that was not ok, `error` and
    `workspace_bytes` the largest, `rank` the smallest.
    """
    rows = records.measurements
    # A sweep has several hundred thousand rows, each the only one of its key.
    several = rows.duplicated(KEY, keep=False)
    parts = [_alone(rows[~several]), _together(rows[several])]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    table = table.merge(records.points, left_on="point", right_index=True, how="left")
    return in_order(records, table)


def in_order(records: Records, rows: pd.DataFrame) -> pd.DataFrame:
    """Sort rows, measured in random order, by the plan's order of points."""
    place = {point: number for number, point in enumerate(records.points.index)}
    return rows.sort_values("point", key=lambda names: names.map(place), kind="stable",
                            ignore_index=True)


def with_points(records: Records, column: str) -> pd.DataFrame:
    """Return the measurements that have a text in `column`, with their point's columns."""
    raw = records.measurements
    return raw[raw[column] != ""].merge(records.points.reset_index(), on="point")


def ratio(records: Records, row: Mapping[Any, Any], other: Mapping[Any, Any]) -> bootstrap.Estimate:
    """Estimate how many times as long one row of `estimates` takes as another.

    The estimate is nan if one of them was not measured. Of a row only its `KEY` counts.
    """
    raw = records.measurements[records.measurements["status"] == "ok"]
    times, others = (list(raw.loc[(raw[KEY] == [each[name] for name in KEY]).all(axis=1),
                                  "seconds"]) for each in (row, other))
    return bootstrap.ratio(times, others) if times and others else bootstrap.NOT_MEASURED


def refused(found: pd.DataFrame) -> pd.DataFrame:
    """Count what was not measured by framework, status and reason; `found` is from `estimates`."""
    rows = found[found["status"] != "ok"].rename(columns={"bench": "framework"})
    alike = rows.groupby(["framework", "status", "reason"], sort=False)
    table = alike.agg(candidates=("candidate", lambda names: ", ".join(dict.fromkeys(names))),
                      points=("point", "nunique"), example=("point", "first")).reset_index()
    return table.rename(columns={"example": "for example"})


def faults(records: Records) -> list[tuple[str, str, str, str, str]]:
    """List wrong values of the raw rows as (file, row, column, expected, found)."""
    found = []
    for line, row in enumerate(records.measurements.to_dict("records"), start=2):
        able, seconds = row["status"] == "ok", row["seconds"]
        checks = {
            "point": (row["point"] in records.points.index, "a point of points.csv"),
            "status": (row["status"] in STATUSES, " or ".join(STATUSES)),
            "seconds": (able == bool(len(seconds)) and (seconds > 0).all(),
                        "positive where ok, else none"),
            "error": (not able or row["error"] >= 0, "the error of what was timed"),
        }
        found += [("measurements.csv", f"line {line}", column, expected, str(row[column]))
                  for column, (holds, expected) in checks.items() if not holds]
    twice = np.flatnonzero(records.measurements.duplicated(["process", *KEY]))
    return found + [("measurements.csv", f"line {row + 2}", "point",
                     "each candidate once a process", "twice") for row in twice]


def _alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate rows of a single process: the median of their windows, without an interval."""
    lengths = rows["seconds"].map(len).where(rows["status"] == "ok", 0).to_numpy(int)
    windows = np.full((len(rows), max(1, lengths.max(initial=1))), np.nan)
    # The median of nothing would warn.
    windows[lengths == 0] = 0.0
    for line, length, seconds in zip(windows, lengths, rows["seconds"], strict=True):
        line[:length] = seconds[:length]
    medians = np.where(lengths > 0, np.nanmedian(windows, axis=1), np.nan)
    return rows.assign(seconds=medians, seconds_low=np.nan, seconds_high=np.nan,
                       processes=(lengths > 0).astype(int))[ESTIMATES]


def _together(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate over the processes of each candidate and point."""
    # Faster than pandas' groups.
    groups: dict[tuple[str, ...], list[dict[Hashable, Any]]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault(tuple(row[name] for name in KEY), []).append(row)
    return pd.DataFrame([{**dict(zip(KEY, key, strict=True)), **_estimate(group)}
                         for key, group in groups.items()], columns=ESTIMATES)


def _estimate(group: list[dict[Hashable, Any]]) -> dict[str, Any]:
    """Reduce the processes of one candidate at one point."""
    able = [row["seconds"] for row in group if row["status"] == "ok"]
    broken = next((row for row in group if row["status"] != "ok"), {"status": "ok", "reason": ""})
    found = bootstrap.estimate(able) if able else bootstrap.NOT_MEASURED
    error, workspace, rank = ([row[name] for row in group if not pd.isna(row[name])]
                              for name in ("error", "workspace_bytes", "rank"))
    return {"status": broken["status"], "reason": broken["reason"], **found.columns("seconds"),
            "processes": found.processes,
            "error": max(error, default=np.nan), "rank": min(rank, default=np.nan),
            "workspace_bytes": max(workspace, default=np.nan)}


def _rows(file: Path) -> list[dict[str, str]]:
    """Return the rows whose lines are whole."""
    text = packed.read_text(file)
    return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))


def _identity(row: dict[str, str]) -> tuple[str, int, str]:
    return row["bench"], int(row["process"]), row["point"]
