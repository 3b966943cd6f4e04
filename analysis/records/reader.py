"""Reads a campaign's folder into memory: `campaign.json` and its tables of processes, windows, counters and kernels, by column.

What each column means stands in docs/reference/records.md. A campaign may have been killed at any moment, so an unfinished last line and
the windows of a process that never finished are left out. Nothing here computes.
"""

import csv
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.traces.kernels import LAST_ROWS, UNCLASSIFIED, classify

SCHEMA = 1

PROCESS_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "order": int, "status": str, "reason": str, "window_steps": float, "parameters": float,
    "check": str, "check_reason": str, "loss_error": float, "gradient_error": float, "trajectory_error": float,
    "peak_memory_bytes": float, "build_seconds": float, "started": str, "release": str, "device_name": str, "log": str,
    "copies_error": float,
}
WINDOW_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "steps": int, "last_step": int, "start": float, "stop": float,
    "seconds": float, "step_seconds": float, "loss": float,
}
COUNTER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "device": str, "kind": str, "seconds": float, "pcie_rx_bytes": float, "pcie_tx_bytes": float,
    "pcie_covered_seconds": float, "nvlink_rx_bytes": float, "nvlink_tx_bytes": float, "energy_joules": float,
    "energy_counter_joules": float, "power_watts": float, "sm_mhz": float, "memory_mhz": float, "event_reasons": float,
    "memory_used_bytes": float, "busy_percent": float, "processes": float, "cpu_seconds": float, "driver_seconds": float,
    "gpm_pcie_rx_bytes_per_second": float, "gpm_pcie_tx_bytes_per_second": float, "gpm_nvlink_rx_bytes_per_second": float,
    "gpm_nvlink_tx_bytes_per_second": float, "sm_percent": float, "tensor_percent": float, "dram_percent": float, "broken": str,
}
EDGE = "edge"  # kind of the readings on both sides of a window
KERNEL_COLUMNS: Mapping[str, type] = {
    "trial": str, "steps": float, "class": str, "arithmetic": str, "transposition": str, "kernel": str, "count_per_step": float,
    "seconds_per_step": float, "bytes_per_step": float, "reason": str, "exposed_seconds_per_step": float,
}
LATER = ("exposed_seconds_per_step", "copies_error")  # columns that campaigns of older releases do not have: not measured there
PHASE_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "variant": str, "window": float, "steps": float, "start": float, "stop": float, "seconds": float,
    "reason": str,
}
META_KEYS = ("name", "started", "finished", "suite", "machine", "environments", "trials")
TRIAL_KEYS = (
    "trial", "framework", "release", "network", "batch", "devices", "device_kind", "threads", "precision", "tuning", "data",
    "parameters", "flops_per_step", "processes_planned", "status", "reason",
)


class BadRecords(ValueError):
    """Records that cannot be read; the message names the file, the column or line, and the remedy."""


@dataclass(frozen=True)
class Campaign:
    """One execution of a suite. `processes` has a row a finished process, `windows`, `counters` and `phases` those processes' rows,
    `kernels` the rows of each trial's trace, `operators` those of its profile on a CPU, with the same columns."""

    folder: Path
    meta: dict[str, Any]
    processes: pd.DataFrame
    windows: pd.DataFrame
    counters: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COUNTER_COLUMNS)))
    kernels: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(KERNEL_COLUMNS)))
    operators: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(KERNEL_COLUMNS)))
    phases: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(PHASE_COLUMNS)))

    @property
    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.meta["trials"]
        return trials


def of_devices(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's `strategy` and `global_batch`, which campaigns before there were several devices do not name."""
    return {"strategy": trial.get("strategy", ""), "global_batch": trial.get("global_batch", trial["batch"] * trial["devices"])}


def read(folder: str | Path) -> Campaign:
    """Read the campaign in `folder`. Raises BadRecords."""
    folder = Path(folder)
    meta = _read_meta(folder / "campaign.json")
    names = {trial["trial"] for trial in meta["trials"]}
    processes = read_table(folder / "processes.csv", PROCESS_COLUMNS)
    windows = read_table(folder / "windows.csv", WINDOW_COLUMNS)
    counters = read_table(folder / "counters.csv", COUNTER_COLUMNS)
    kernels = read_table(folder / "kernels.csv", KERNEL_COLUMNS)
    operators = read_table(folder / "operators.csv", KERNEL_COLUMNS)
    phases = read_table(folder / "phases.csv", PHASE_COLUMNS)
    tables = {"processes.csv": processes, "windows.csv": windows, "counters.csv": counters, "kernels.csv": kernels,
              "operators.csv": operators, "phases.csv": phases}
    for file, table in tables.items():
        unknown = sorted(set(table["trial"]) - names)
        if unknown:
            raise BadRecords(f"{folder / file}: column trial: {unknown[0]} is no trial of campaign.json; "
                             "the files belong to different campaigns: restore them from one copy")
    processes = processes.drop_duplicates(["trial", "process"], keep="last")  # a resumed campaign may repeat a failed process
    finished = processes[["trial", "process"]]
    windows = _last_attempt(windows).merge(finished, on=["trial", "process"], how="inner")
    counters = counters.merge(finished, on=["trial", "process"], how="inner")
    phases = phases.drop_duplicates(["trial", "process", "variant", "window"], keep="last")
    phases = phases.merge(finished, on=["trial", "process"], how="inner")
    return Campaign(folder, meta, processes.reset_index(drop=True), windows, counters, _classed(_ended(kernels)), _ended(operators),
                    phases)


def _classed(kernels: pd.DataFrame) -> pd.DataFrame:
    """Class anew what the release that traced it could not class: rules grow with the kernels that are met."""
    unclassified = kernels["class"] == UNCLASSIFIED
    return kernels.assign(**{"class": kernels["class"].mask(unclassified, kernels["kernel"].map(lambda name: classify(name).name))})


def _read_meta(file: Path) -> dict[str, Any]:
    try:
        meta = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRecords(f"{file}: no such file; name a folder that `dlbench run` wrote, such as results/<campaign>") from None
    except json.JSONDecodeError as error:
        raise BadRecords(f"{file}: line {error.lineno}: not JSON ({error.msg}); restore the file from a copy") from None
    if not isinstance(meta, dict):
        raise BadRecords(f"{file}: holds a {type(meta).__name__}, not an object; restore the file from a copy")
    if meta.get("schema") != SCHEMA:
        raise BadRecords(f"{file}: schema {meta.get('schema')!r}, this dlbench reads {SCHEMA}; "
                         f"use the dlbench that wrote it ({meta.get('dlbench', 'not recorded')})")
    missing = [key for key in META_KEYS if key not in meta]
    missing += [f"trials[{number}].{key}" for number, trial in enumerate(meta.get("trials", ())) for key in TRIAL_KEYS
                if key not in trial]
    if missing:
        raise BadRecords(f"{file}: no key {missing[0]}; restore the file from a copy or run the suite again")
    return meta


def read_table(file: Path, columns: Mapping[str, type]) -> pd.DataFrame:
    """Read a CSV with at least `columns`, in their types. A file that does not exist yet is an empty table."""
    text = file.read_text(encoding="utf-8") if file.exists() else ",".join(columns) + "\n"
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        warnings.warn(f"{file}: the last line is unfinished (killed while writing) and was left out", stacklevel=3)
    header, *rows = list(csv.reader(io.StringIO(whole))) or [[]]
    missing = [name for name in columns if name not in header and name not in LATER]
    if missing:
        raise BadRecords(f"{file}: no column {missing[0]}; restore the file from a copy or run the suite again")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise BadRecords(f"{file}: row {number} has {len(row)} fields, the header has {len(header)}; delete that row")
    table = pd.DataFrame(rows, columns=header, dtype=str)
    table = table.assign(**{name: "" for name in columns if name not in header})
    for name, kind in columns.items():
        if kind is not str:
            table[name] = _numbers(table[name], file, kind)
    return table


def _numbers(column: "pd.Series[str]", file: Path, kind: type) -> "pd.Series[Any]":
    """Turn text into numbers: empty is not measured (nan) where the column is of float, and an error where it is of int."""
    values = pd.to_numeric(column, errors="coerce").astype(float)
    empty = column == ""
    bad = values.isna() & ~empty & (column.str.lower() != "nan")
    if kind is int:
        bad |= values.isna() | (values % 1 != 0)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        wanted = "a whole number" if kind is int else "a number"
        raise BadRecords(f"{file}: column {column.name}, row {row + 2}: {column.iloc[row]!r} is not {wanted}; "
                         "delete that row and let `dlbench run --resume` measure it again")
    return values.astype(int) if kind is int else values


def _ended(traces: pd.DataFrame) -> pd.DataFrame:
    """Leave out the traces that were cut off."""
    return traces[traces["trial"].isin(traces.loc[traces["class"].isin(LAST_ROWS), "trial"])]


def _last_attempt(windows: pd.DataFrame) -> pd.DataFrame:
    """Keep each process's last attempt: a process that was killed and resumed starts again from its first window number."""
    key = [windows["trial"], windows["process"]]
    restarted = windows["window"].groupby(key).diff() <= 0
    attempt = restarted.groupby(key).cumsum()
    return windows[attempt == attempt.groupby(key).transform("max")]
