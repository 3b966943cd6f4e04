"""Reads a study's folder: study.json, points.csv (what was computed) and measurements.csv (a row a candidate, point and process).

What each column means stands in docs/reference/records.md. Several folders are parts of one study, measured on several devices. The
estimates are those of campaigns: processes first, then the windows of each.
"""

import csv
import io
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records import packed
from analysis.records.reader import BadRecords
from analysis.statistics import bootstrap

SCHEMA = 1
MEASUREMENT_COLUMNS = ("bench", "process", "point", "candidate", "status", "reason", "error", "workspace_bytes", "rank",
                       "operations", "steps", "seconds")
LINK_COLUMNS: Mapping[str, type] = {
    "wire": str, "devices": int, "process": int, "link": str, "status": str, "reason": str,
    "window": float, "bytes": float, "steps": float, "start": float, "stop": float,
    "seconds": float}
# Links between devices; the others stay within one device or its host.
WIRED = ("send", "shift", "pair", "fan_in", "fan_out", "swap", "all_reduce")
HOST_SUMS = ("host_sum_one", "host_sum_all")
NUMBERS = ("error", "workspace_bytes", "rank", "operations", "steps")
KEY = ["bench", "point", "candidate"]
ESTIMATES = [*KEY, "status", "reason", "seconds", "seconds_low", "seconds_high", "error", "workspace_bytes", "rank", "processes"]
STATUSES = ("ok", "unsupported", "failed", "different")


@dataclass(frozen=True)
class Records:
    """One study. `points` is indexed by the point's name; `measurements` has `seconds` as an array of windows a row."""

    folder: Path
    meta: dict[str, Any]
    points: pd.DataFrame
    measurements: pd.DataFrame


def read(folders: Sequence[str | Path]) -> Records:
    """Read a study, or the parts of one. Raises BadRecords where a file is missing, or parts are of different studies."""
    parts = [_read(Path(folder)) for folder in folders]
    first = parts[0]
    for part in parts[1:]:
        if part.meta["study"] != first.meta["study"] or list(part.points.columns) != list(first.points.columns):
            raise BadRecords(f"{part.folder}: holds the study {part.meta['study']} with other columns than {first.folder}; "
                             "name the parts of one study")
    points = pd.concat([part.points for part in parts])
    measurements = pd.concat([part.measurements for part in parts], ignore_index=True)
    return Records(first.folder, first.meta, points[~points.index.duplicated()], measurements)


def finished(folder: Path) -> set[tuple[str, int, str]]:
    """Return what need not be measured again, (bench, process, point), having cut off the point that a kill left unfinished."""
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
    """Reduce measurements to a row a bench, point and candidate, with the point's columns.

    `seconds` of one operation with `seconds_low` and `seconds_high` (nan below three processes), `status` and `reason` of the
    first process that was not ok, the largest `error` and `workspace_bytes`, and the smallest `rank`.
    """
    rows = records.measurements
    several = rows.duplicated(KEY, keep=False)  # a sweep has several hundred thousand rows, each the only one of its kind
    parts = [_alone(rows[~several]), _together(rows[several])]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    table = table.merge(records.points, left_on="point", right_index=True, how="left")
    place = {point: number for number, point in enumerate(records.points.index)}  # measured in random order, shown in the plan's
    return table.sort_values("point", key=lambda names: names.map(place), kind="stable", ignore_index=True)


def ratio(records: Records, point: str, candidate: str, other: str, bench: str | None = None) -> bootstrap.Estimate:
    """Estimate how many times as long `candidate` takes as `other` at one point; nan where either was not measured."""
    rows = records.measurements
    rows = rows[(rows["point"] == point) & (rows["status"] == "ok") & ((rows["bench"] == bench) | (bench is None))]
    times, others = (list(rows.loc[rows["candidate"] == name, "seconds"]) for name in (candidate, other))
    return bootstrap.ratio(times, others) if times and others else bootstrap.Estimate(np.nan, np.nan, np.nan, 0)


def refused(found: pd.DataFrame) -> pd.DataFrame:
    """Count what was not measured, a row a framework, status and reason, with its candidates; `found` is that of `estimates`."""
    rows = found[found["status"] != "ok"].rename(columns={"bench": "framework"})
    alike = rows.groupby(["framework", "status", "reason"], sort=False)
    table = alike.agg(candidates=("candidate", lambda names: ", ".join(dict.fromkeys(names))), points=("point", "nunique"),
                      example=("point", "first")).reset_index()
    return table.rename(columns={"example": "for example"})


def faults(records: Records) -> list[tuple[str, str, str, str, str]]:
    """What cannot be in raw rows, as (file, row, column, expected, found): points that are not planned, times without a proof."""
    found = []
    for line, row in enumerate(records.measurements.to_dict("records"), start=2):
        able, seconds = row["status"] == "ok", row["seconds"]
        checks = {
            "point": (row["point"] in records.points.index, "a point of points.csv"),
            "status": (row["status"] in STATUSES, " or ".join(STATUSES)),
            "seconds": (able == bool(len(seconds)) and (seconds > 0).all(), "positive where ok, else none"),
            "error": (not able or row["error"] >= 0, "the error of what was timed"),
        }
        found += [("measurements.csv", f"line {line}", column, expected, str(row[column]))
                  for column, (holds, expected) in checks.items() if not holds]
    twice = np.flatnonzero(records.measurements.duplicated(["process", *KEY]))
    return found + [("measurements.csv", f"line {row + 2}", "point", "each candidate once a process", "twice") for row in twice]


def _alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates of rows that have no other process: the median of their own windows, without an interval."""
    lengths = rows["seconds"].map(len).where(rows["status"] == "ok", 0).to_numpy(int)
    windows = np.full((len(rows), max(1, lengths.max(initial=1))), np.nan)
    windows[lengths == 0] = 0.0  # the median of nothing would warn
    for line, length, seconds in zip(windows, lengths, rows["seconds"], strict=True):
        line[:length] = seconds[:length]
    medians = np.where(lengths > 0, np.nanmedian(windows, axis=1), np.nan)
    return rows.assign(seconds=medians, seconds_low=np.nan, seconds_high=np.nan, processes=(lengths > 0).astype(int))[ESTIMATES]


def _together(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates over the processes of each candidate and point."""
    groups: dict[tuple[str, ...], list[dict[Hashable, Any]]] = {}  # faster than pandas' groups
    for row in rows.to_dict("records"):
        groups.setdefault(tuple(row[name] for name in KEY), []).append(row)
    return pd.DataFrame([{**dict(zip(KEY, key, strict=True)), **_estimate(group)} for key, group in groups.items()],
                        columns=ESTIMATES)


def _estimate(group: list[dict[Hashable, Any]]) -> dict[str, Any]:
    """Reduce the processes of one candidate at one point."""
    able = [row["seconds"] for row in group if row["status"] == "ok"]
    broken = next((row for row in group if row["status"] != "ok"), {"status": "ok", "reason": ""})
    found = bootstrap.estimate(able) if able else bootstrap.Estimate(np.nan, np.nan, np.nan, 0)
    known = {name: [row[name] for row in group if row[name] == row[name]] for name in ("error", "workspace_bytes", "rank")}
    return {"status": broken["status"], "reason": broken["reason"], "seconds": found.value, "seconds_low": found.low,
            "seconds_high": found.high, "error": max(known["error"], default=np.nan),
            "workspace_bytes": max(known["workspace_bytes"], default=np.nan), "rank": min(known["rank"], default=np.nan),
            "processes": found.processes}


def _read(folder: Path) -> Records:
    try:
        meta = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        points = pd.read_csv(packed.find(folder / "points.csv"), index_col="point", keep_default_na=False)
    except (OSError, ValueError) as error:
        raise BadRecords(f"{folder}: no study that can be read ({error}); name a folder that `dlbench study` wrote") from None
    if meta.get("schema") != SCHEMA:
        raise BadRecords(f"{folder}: schema {meta.get('schema')!r}, this dlbench reads {SCHEMA}; use the dlbench that wrote it")
    table = pd.DataFrame(_rows(folder / "measurements.csv"), columns=list(MEASUREMENT_COLUMNS), dtype=str)
    for name in NUMBERS:
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table["process"] = table["process"].astype(int)
    table["seconds"] = pd.Series([np.array(text.split(), float) for text in table["seconds"]], dtype=object)
    return Records(folder, meta, points, table)


def _rows(file: Path) -> list[dict[str, str]]:
    """The rows whose lines are whole."""
    text = packed.read_text(file)
    return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))


def _identity(row: dict[str, str]) -> tuple[str, int, str]:
    return row["bench"], int(row["process"]), row["point"]
