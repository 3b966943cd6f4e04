"""Reads a campaign's folder: `campaign.json` and its tables.

docs/reference/records.md says what each column means. A campaign may have been killed at any
moment, so an unfinished last line is left out, and so are the windows of a process that never
finished. Nothing here computes.
"""

import csv
import io
import math
import os
import reprlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records import packed, pages
from analysis.records.text import BadRecords
from analysis.traces.kernels import LAST_ROWS, UNCLASSIFIED, classify

SCHEMA = 1

PROCESS_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "order": int, "status": str, "reason": str,
    "window_steps": float, "parameters": float, "check": str, "check_reason": str,
    "loss_error": float, "gradient_error": float, "trajectory_error": float,
    "peak_memory_bytes": float, "build_seconds": float, "proof_seconds": float, "started": str,
    "release": str, "device_name": str, "log": str, "copies_error": float,
    "proof_rate_error": float, "proof_frozen_share": float, "proof_gradient_error": float,
    "settings": str, "output_error": float, "output_limit": float, "node": str,
    "quantization_error": float, "top1_agreement": float, "first_call_seconds": float,
    "model_bytes": float,
}
# What a proof could see: of campaigns whose processes prove the step that they time.
STRENGTH = ("proof_rate_error", "proof_frozen_share", "proof_gradient_error")
# What a process of an inference engine reports beside its times.
OF_ENGINES = ("quantization_error", "top1_agreement", "first_call_seconds", "model_bytes")
# Columns that campaigns of earlier releases do not have.
LATE = ("proof_seconds", *STRENGTH, "settings", "output_error", "output_limit", "node",
        *OF_ENGINES)
WINDOW_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "steps": int, "last_step": int, "start": float,
    "stop": float, "seconds": float, "step_seconds": float, "loss": float,
}
# What a node's network interfaces and InfiniBand ports have carried since it started.
CARRIED = ("nic_tx_bytes", "nic_rx_bytes", "infiniband_tx_bytes", "infiniband_rx_bytes")
_COUNTED = (
    "seconds", "pcie_rx_bytes", "pcie_tx_bytes", "pcie_covered_seconds", "nvlink_rx_bytes",
    "nvlink_tx_bytes", "energy_joules", "energy_counter_joules", "power_watts", "sm_mhz",
    "memory_mhz", "event_reasons", "memory_used_bytes", "busy_percent", "processes", "cpu_seconds",
    "driver_seconds", "gpm_pcie_rx_bytes_per_second", "gpm_pcie_tx_bytes_per_second",
    "gpm_nvlink_rx_bytes_per_second", "gpm_nvlink_tx_bytes_per_second", "sm_percent",
    "tensor_percent", "dram_percent", *CARRIED,
)
COUNTER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "device": str, "kind": str, **dict.fromkeys(_COUNTED, float),
    "broken": str,
}
# The last pandas for Python 3.10 is 2.3.
PANDAS = int(pd.__version__.partition(".")[0])
# Of a run that diverged or moved a tensor that must stand still.
MAY_BE_INFINITE = {"loss", "loss_error", "gradient_error", "trajectory_error", "copies_error",
                   "proof_rate_error", "proof_frozen_share", "proof_gradient_error", "output_error"}
# Columns of floats, because they may be empty.
WHOLE_NUMBERS = ("window_steps", "parameters", "peak_memory_bytes", "steps", "window",
                 "model_bytes")
# Without these a row says nothing.
MEASURED = ("start", "stop", "seconds", "step_seconds")
LARGEST_WHOLE = 2.0**53  # beyond it a float has no units
EDGE = "edge"  # kind of the readings on both sides of a window
KERNEL_COLUMNS: Mapping[str, type] = {
    "trial": str, "steps": float, "class": str, "arithmetic": str, "transposition": str,
    "kernel": str, "count_per_step": float, "seconds_per_step": float, "bytes_per_step": float,
    "reason": str, "exposed_seconds_per_step": float,
}
PHASE_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "variant": str, "window": float, "steps": float, "start": float,
    "stop": float, "seconds": float, "reason": str,
}
NETWORK_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "steps": int, "network_tx_bytes": float,
}
# A few hundred calls a row: whole nanoseconds with blanks between, from call `first` of a window.
LATENCY_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "first": int, "nanoseconds": str,
}
# A rate of requests that a process tried.
SERVER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "rate": float, "requests": int, "seconds": float,
    "in_system": float, "mean_latency_seconds": float, "latency_seconds": float, "within": int,
}
# A run of a scenario by LoadGen. `valid` is its verdict, `unmet` what it missed, or why none ran.
SCENARIO_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "scenario": str, "batch": int, "calls": int, "seconds": float,
    "samples_per_second": float, "latency_mean_seconds": float, "latency_p50_seconds": float,
    "latency_p90_seconds": float, "latency_p99_seconds": float, "valid": int, "unmet": str,
}
# An epoch of a process that trains to a target: `step` and `seconds` since its start.
ACCURACY_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "seed": int, "epoch": int, "step": int, "seconds": float,
    "test_accuracy": float, "test_loss": float, "witness_error": float, "witness_share": float,
    "learning_rate": float, "evaluation_error": float,
}
TABLES = {"processes": PROCESS_COLUMNS, "windows": WINDOW_COLUMNS, "counters": COUNTER_COLUMNS,
          "kernels": KERNEL_COLUMNS, "operators": KERNEL_COLUMNS, "phases": PHASE_COLUMNS,
          "network": NETWORK_COLUMNS, "latencies": LATENCY_COLUMNS,
          "server": SERVER_COLUMNS, "scenarios": SCENARIO_COLUMNS, "accuracy": ACCURACY_COLUMNS}


def _empty(columns: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame(columns=list(columns))


@dataclass(frozen=True, eq=False)
class Campaign:
    """One execution of a suite. Nothing changes it, so what follows from it may be kept.

    `processes` has a row per finished process; `windows`, `counters`, `phases`, of several nodes
    `network`, of inference `latencies` and `server` and of training to a target `accuracy` hold the
    rows of these processes. `kernels`
    holds the trace of each trial and `operators` its profile on a CPU, with the same columns. In
    campaigns of earlier releases one worker proved all processes of a trial: they have no
    `proves_each_process`.
    Those without `tells_settings` do not say what a tier sets.
    """

    folder: Path
    meta: dict[str, Any]
    processes: pd.DataFrame
    windows: pd.DataFrame
    counters: pd.DataFrame = field(default_factory=partial(_empty, COUNTER_COLUMNS))
    kernels: pd.DataFrame = field(default_factory=partial(_empty, KERNEL_COLUMNS))
    operators: pd.DataFrame = field(default_factory=partial(_empty, KERNEL_COLUMNS))
    phases: pd.DataFrame = field(default_factory=partial(_empty, PHASE_COLUMNS))
    network: pd.DataFrame = field(default_factory=partial(_empty, NETWORK_COLUMNS))
    latencies: pd.DataFrame = field(default_factory=partial(_empty, LATENCY_COLUMNS))
    server: pd.DataFrame = field(default_factory=partial(_empty, SERVER_COLUMNS))
    scenarios: pd.DataFrame = field(default_factory=partial(_empty, SCENARIO_COLUMNS))
    accuracy: pd.DataFrame = field(default_factory=partial(_empty, ACCURACY_COLUMNS))
    proves_each_process: bool = False
    tells_settings: bool = False

    @property
    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.meta["trials"]
        return trials

    def rows(self, table: str, trial: str) -> pd.DataFrame:
        """Return a trial's rows of one of `TABLES`. Each table is searched once for all trials."""
        whole: pd.DataFrame = getattr(self, table)
        if table not in self._by_trial:
            self._by_trial[table] = {str(name): rows
                                     for name, rows in whole.groupby("trial", sort=False)}
        found = self._by_trial[table].get(trial)
        return whole.iloc[:0] if found is None else found

    @property
    def joined(self) -> dict[str, Any]:
        """What campaign.json says of the nodes that each ran the whole campaign; {} of one run."""
        return self.meta.get("joined") or {}

    def nodes_of(self, trial: str, processes: Iterable[int]) -> list[str]:
        """Return the node of each process; [] unless several nodes repeated the campaign."""
        if not self.joined:
            return []
        rows = self.rows("processes", trial)
        names = dict(zip(rows["process"], rows["node"], strict=True))
        return [names[process] for process in processes]

    @cached_property
    def _by_trial(self) -> dict[str, dict[str, pd.DataFrame]]:
        return {}


def infers(trial: Mapping[str, Any]) -> bool:
    """Return whether a trial runs a trained network; one of an earlier release trains."""
    return trial.get("mode") == "inference"


def target_of(campaign: Campaign) -> dict[str, Any]:
    """Return what the suite says of `until`; {} of a campaign that times training alone."""
    return campaign.meta["suite"].get("until") or {}


def read(folder: str | Path) -> Campaign:
    """Read the campaign in `folder`. Raises BadRecords."""
    folder = Path(folder)
    meta = _read_meta(folder / "campaign.json")
    names = {trial["trial"] for trial in meta["trials"]}
    tables = {}
    for name, columns in TABLES.items():
        file = folder / f"{name}.csv"
        tables[name] = read_table(
            file, {column: kind for column, kind in columns.items()
                   if column not in (*LATE, *CARRIED)})
        unknown = sorted(set(tables[name]["trial"]) - names)
        if unknown:
            raise BadRecords(
                f"{file}: column trial: {unknown[0]} is no trial of campaign.json; "
                "the files belong to different campaigns: restore them from one copy")
    # A resumed campaign may repeat a failed process.
    processes = tables["processes"].drop_duplicates(["trial", "process"], keep="last")
    proves_each_process = set(STRENGTH) <= set(processes)
    tells_settings = "settings" in processes
    processes = processes.assign(**{name: _late(processes, name, folder) for name in LATE})
    counters = tables["counters"]
    tables["counters"] = counters.assign(**{
        name: _numbers(counters[name], folder / "counters.csv", float) if name in counters
        else math.nan for name in CARRIED})
    finished = processes[["trial", "process"]]
    key = ["trial", "process", "variant", "window"]
    phases = tables["phases"].drop_duplicates(key, keep="last")
    of_finished = {name: table if table.empty else
                   table.merge(finished, on=["trial", "process"], how="inner")
                   for name, table in (("windows", _last_attempt(tables["windows"])),
                                       ("counters", tables["counters"]), ("phases", phases),
                                       ("network", _last_attempt(tables["network"])),
                                       ("latencies", _last_attempt(tables["latencies"])),
                                       ("accuracy", _last_attempt(tables["accuracy"], "epoch")),
                                       ("server", tables["server"].drop_duplicates(
                                           ["trial", "process", "rate"], keep="last")),
                                       ("scenarios", tables["scenarios"].drop_duplicates(
                                           ["trial", "process", "scenario"], keep="last")))}
    return Campaign(folder, meta, processes.reset_index(drop=True), **of_finished,
                    kernels=_classed(_ended(tables["kernels"])),
                    operators=_ended(tables["operators"]),
                    proves_each_process=proves_each_process, tells_settings=tells_settings)


def _classed(kernels: pd.DataFrame) -> pd.DataFrame:
    """Classify the unclassified kernels again: the rules grow with the kernels that are met."""
    classes = kernels["kernel"].map(lambda name: classify(name).name)
    return kernels.assign(**{"class": kernels["class"].mask(kernels["class"] == UNCLASSIFIED,
                                                            classes)})


def _read_meta(file: Path) -> dict[str, Any]:
    meta = pages.read_page(file, "name a folder that `dlbench run` wrote, such as "
                                 "results/<campaign>")
    if meta.get("schema") != SCHEMA:
        raise BadRecords(f"{file}: schema {meta.get('schema')!r}, this dlbench reads {SCHEMA}; "
                         f"use the dlbench that wrote it ({meta.get('dlbench', 'not recorded')})")
    pages.check_page(file, meta, pages.CampaignPage)
    return meta


def read_table(file: Path, columns: Mapping[str, type]) -> pd.DataFrame:
    """Read a CSV with at least `columns`, in their types. A missing file is an empty table."""
    exists = os.path.lexists(packed.find(file))
    text = packed.read_text(file) if exists else ",".join(columns) + "\n"
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        warnings.warn(f"{file}: the last line is unfinished (killed while writing) "
                      "and was left out", stacklevel=3)
    header, *rows = _rows(file, whole) or [[]]
    missing = [name for name in columns if name not in header]
    if missing or len(set(header)) < len(header):
        twice = next((name for name in header if header.count(name) > 1), "")
        what = f"no column {missing[0]}" if missing else f"two columns {twice!r}"
        raise BadRecords(f"{file}: {what}; restore the file from a copy or run the suite again")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise BadRecords(f"{file}: row {number} has {len(row)} fields, "
                             f"the header has {len(header)}; delete that row")
    texts = pd.DataFrame(rows, columns=header, dtype=str)
    numbers = {name: _numbers(texts[name], file, kind)
               for name, kind in columns.items() if kind is not str}
    # Made at once, so that columns of one type lie together: several times as fast to search.
    return pd.DataFrame({name: numbers.get(name, texts[name]) for name in header},
                        index=texts.index, columns=header)


def _rows(file: Path, text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        rows.extend(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise BadRecords(f"{file}: row {len(rows) + 1}: {error}; delete that row") from None
    return rows


def count_rows(file: Path) -> tuple[int, bool]:
    """Return how many rows a table has, and whether the last one is whole."""
    text = packed.read_text(file) if os.path.lexists(packed.find(file)) else ""
    whole = text[:text.rfind("\n") + 1]
    return len(_rows(file, whole)) - 1, whole == text


def _late(processes: pd.DataFrame, name: str, folder: Path) -> Any:
    """Return a late column in its type, or what stands for it in an earlier campaign."""
    if PROCESS_COLUMNS[name] is str:
        return processes.get(name, "")
    return _numbers(processes[name], folder / "processes.csv", float) \
        if name in processes else math.nan


def _numbers(column: "pd.Series[str]", file: Path, kind: type) -> "pd.Series[Any]":
    """Turn text into numbers. An empty cell is nan in a float column and an error in an int one."""
    text = column.to_numpy(object)
    # NumPy's operations, as pandas's take ten times as long on columns this short.
    values = np.asarray(pd.to_numeric(text, errors="coerce"), float)
    if PANDAS < 3:
        # Its numbers may be off in the last digit, and audits compare all of them.
        read = np.isfinite(values)
        values[read] = [float(cell) for cell in text[read]]
    bad = np.isnan(values)
    if kind is not int:
        bad[bad] = [cell != "" and cell.lower() != "nan" for cell in text[bad]]
    if column.name not in MAY_BE_INFINITE:
        bad |= np.isinf(values)
    whole = kind is int or column.name in WHOLE_NUMBERS
    if whole:
        known = np.isfinite(values)
        bad[known] |= (np.fmod(values[known], 1) != 0) | (abs(values[known]) > LARGEST_WHOLE)
    if bad.any():
        row = int(bad.argmax())
        wanted, found = "a whole number" if whole else "a number", column.iloc[row][:80]
        raise BadRecords(
            f"{file}: column {column.name}, row {row + 2}: {found!r} is not {wanted}; "
            "delete that row and let `dlbench run --resume` measure it again")
    return pd.Series(values.astype(int) if kind is int else values, column.index, name=column.name)


def fault_of(table: str, row: Mapping[str, Any]) -> str:
    """Say what in a row that is about to be written no reader would take; empty if nothing."""
    for name, kind in TABLES[table].items():
        value = row.get(name, "")
        if kind is str or value is None or (isinstance(value, str) and not value):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return f"{name}: came {reprlib.repr(value)}, expected a number"
        number = _float(value)
        if math.isnan(number) and (kind is int or name in MEASURED):
            return f"{name}: came nan, expected a number"
        if math.isinf(number) and name not in MAY_BE_INFINITE:
            return f"{name}: came {value}, expected a finite number"
        whole = kind is int or name in WHOLE_NUMBERS
        if whole and not math.isnan(number) and (number % 1 or abs(number) > LARGEST_WHOLE):
            return f"{name}: came {reprlib.repr(value)}, expected a whole number"
    return ""


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # of a whole number
        return math.inf


def _ended(traces: pd.DataFrame) -> pd.DataFrame:
    """Leave out the traces that were cut off."""
    whole = traces.loc[traces["class"].isin(LAST_ROWS), "trial"]
    return traces[traces["trial"].isin(whole)]


def _last_attempt(windows: pd.DataFrame, counter: str = "window") -> pd.DataFrame:
    """Keep the last attempt of each process: a resumed one begins with its first window again."""
    if windows.empty:
        return windows
    key, place = [windows["trial"], windows["process"]], windows[counter]
    if "first" in windows:
        # Of one window's calls there are several rows.
        place = place * 2**32 + windows["first"]
    restarted = place.groupby(key).diff() <= 0
    attempt = restarted.groupby(key).cumsum()
    return windows[attempt == attempt.groupby(key).transform("max")]
