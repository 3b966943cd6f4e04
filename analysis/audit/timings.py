"""Checks that a campaign's times fit one another: windows, calls, requests, scenarios, epochs.

Every function returns findings and changes nothing.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials import latency, loading

CLOCK_SECONDS = 2e-9  # start and stop are written to a nanosecond
# Calls follow one another and are written to a nanosecond, so they add up to their window.
SUM_OF_CALLS = 1e-4
# LoadGen asks for no sample while it begins and ends, and between two queries of MultiStream.
BUSY_SHARE, TO_BEGIN = 0.5, 2.0


class Finding(NamedTuple):
    """One thing that does not fit: where, what stands there, and what should."""

    file: str
    row: str
    column: str
    expected: str
    found: str


def _windows(campaign: Campaign) -> Iterator[Finding]:
    # Training to a target has as many as the process needs epochs (`_accuracy`).
    timed_windows = None if reader.target_of(campaign) else campaign.meta["suite"].get("windows")
    windows = dict(list(campaign.windows.groupby(["trial", "process"])))
    for process in campaign.processes.to_dict("records"):
        group = windows.get((process["trial"], process["process"]), campaign.windows.iloc[:0])
        rows = rows_of(group)
        yield from _in_itself(rows)
        yield from _in_sequence(rows)
        if process["status"] != "ok":
            continue
        timed = [row for row in rows if row["window"] >= 0]
        if not timed or (timed_windows and len(timed) != timed_windows):
            yield Finding("windows.csv", place_of(process), "window",
                          f"{timed_windows or 'some'} timed windows", str(len(timed)))
        for row in timed:
            if row["steps"] != process["window_steps"]:
                expected = f"{process['window_steps']:.0f}, the window_steps of processes.csv"
                yield _off(row, "steps", expected)


def _latencies(campaign: Campaign) -> Iterator[Finding]:
    """Each timed window of inference has the time of every call, and they add up to it."""
    for trial in filter(reader.infers, campaign.trials):
        calls = campaign.rows("latencies", trial["trial"])
        texts = calls.sort_values("first").groupby(["process", "window"])["nanoseconds"]
        known = texts.agg(" ".join)
        windows = campaign.rows("windows", trial["trial"])
        for row in rows_of(windows[windows["window"] >= 0]):
            nanoseconds = known.get((row["process"], row["window"]), "").split()
            seconds = 1e-9 * sum(map(float, nanoseconds))
            place = f"{place_of(row)} window {row['window']}"
            if len(nanoseconds) != row["steps"]:
                yield Finding("latencies.csv", place, "nanoseconds", f"{row['steps']} calls",
                              str(len(nanoseconds)))
            elif not math.isclose(seconds, row["seconds"], rel_tol=SUM_OF_CALLS):
                yield Finding("latencies.csv", place, "nanoseconds",
                              f"calls of {row['seconds']:.6g} s together", f"{seconds:.6g} s")


def _server(campaign: Campaign) -> Iterator[Finding]:
    """Each rate fits its latencies by Little's law, and keeps them by the rule of LoadGen."""
    share = reader.server_goal(campaign)[1]
    for row in rows_of(campaign.server):
        place = f"{place_of(row)} rate {row['rate']:.6g}"
        for column, expected in latency.contradicted(row):
            yield Finding("server.csv", place, column, expected, f"{row[column]:.6g}")
        if math.isnan(row["valid"]):
            continue
        kept = row["valid"] and bootstrap.stops_early(row["late"], row["requests"], share)
        if row["within"] != kept:
            yield Finding("server.csv", place, "within", f"{int(kept)} by early stopping",
                          str(row["within"]))
    yield from _best_rates(campaign)


def _best_rates(campaign: Campaign) -> Iterator[Finding]:
    """The row of a server in scenarios.csv is its highest rate that was kept."""
    tries = {key: rows[rows["within"] == 1].sort_values("rate")
             for key, rows in campaign.server.groupby(["trial", "process"])}
    played = campaign.scenarios[campaign.scenarios["scenario"] == "server"]
    for row in rows_of(played):
        kept = tries.get((row["trial"], row["process"]), campaign.server.iloc[:0])
        wanted = kept["completed_per_second"].iloc[-1] if len(kept) else math.nan
        found = row["samples_per_second"]
        if found != wanted and not (math.isnan(found) and math.isnan(wanted)):
            yield Finding("scenarios.csv", f"{place_of(row)} server", "samples_per_second",
                          f"{wanted:.6g}, of server.csv", f"{found:.6g}")


def _scenarios(campaign: Campaign) -> Iterator[Finding]:
    """At LoadGen's rate of samples the calls that the worker counted take the time they took."""
    played = campaign.scenarios[campaign.scenarios["samples_per_second"].notna()
                                & (campaign.scenarios["scenario"] != "server")]
    for row in rows_of(played):
        call = row["batch"] / row["samples_per_second"]
        least = BUSY_SHARE * row["seconds"] - TO_BEGIN
        # The last batch may hold fewer samples.
        most = row["seconds"] * (1 + SUM_OF_CALLS) + call
        if not least <= row["calls"] * call <= most:
            yield Finding("scenarios.csv", f"{place_of(row)} {row['scenario']}",
                          "samples_per_second", f"{row['calls']} calls in {row['seconds']:.6g} s",
                          f"{row['samples_per_second']:.6g}")


def _accuracy(campaign: Campaign) -> Iterator[Finding]:
    """Epochs follow one another, each with its window, and a process ends where it should."""
    until = reader.target_of(campaign)
    for process in rows_of(campaign.processes) if until else ():
        epochs, windows = (campaign.rows(table, process["trial"])
                           for table in ("accuracy", "windows"))
        timed = rows_of(windows[(windows["window"] >= 0)
                                & (windows["process"] == process["process"])])
        rows = rows_of(epochs[epochs["process"] == process["process"]])
        yield from _epochs(rows, timed, campaign.meta["seed"] + process["process"])
        for row in rows[:-1]:
            if row["test_accuracy"] >= until["target"]:
                yield Finding("accuracy.csv", f"{place_of(row)} epoch {row['epoch']}",
                              "test_accuracy", "no further epoch at the target",
                              str(row["test_accuracy"]))
        if process["status"] != "ok":
            continue
        if len(rows) != len(timed):
            yield Finding("accuracy.csv", place_of(process), "epoch",
                          f"{len(timed)}, one a timed window", str(len(rows)))
        last = rows[-1]["test_accuracy"] if rows else 0.0
        if not last >= until["target"]:
            yield Finding("accuracy.csv", place_of(process), "test_accuracy",
                          f"{until['target']:g} or more at last", str(last))


def _epochs(rows: list[dict[str, Any]], timed: list[dict[str, Any]], seed: int
            ) -> Iterator[Finding]:
    """Each epoch of a process has its number and seed, and the steps and seconds of its windows."""
    step, seconds = 0, 0.0
    for number, row in enumerate(rows):
        wanted: dict[str, float] = {"epoch": number + 1, "seed": seed}
        if number < len(timed):
            # Two steps of an epoch are not in its window.
            whole = timed[number]["steps"] + 2
            step, seconds = step + whole, seconds + timed[number]["step_seconds"] * whole
            wanted |= {"step": step, "seconds": seconds}
        for column, value in wanted.items():
            if not math.isclose(row[column], value, rel_tol=1e-9):
                yield Finding("accuracy.csv", f"{place_of(row)} epoch {row['epoch']}", column,
                              f"{value:.12g}", f"{row[column]:.12g}")


def _in_itself(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    for row in rows:
        if not row["steps"] > 0:
            yield _off(row, "steps", "more than 0")
            continue
        if not row["start"] < row["stop"]:
            yield _off(row, "stop", f"after start, {row['start']!r}")
        derived = {"seconds": row["stop"] - row["start"],
                   "step_seconds": row["seconds"] / row["steps"]}
        for column, value in derived.items():
            if not math.isclose(row[column], value, rel_tol=1e-9, abs_tol=CLOCK_SECONDS):
                yield _off(row, column, f"{value:.12g}")


def _in_sequence(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    steps = 0
    for number, row in enumerate(rows):
        steps += row["steps"]
        if row["last_step"] != steps:
            yield _off(row, "last_step", f"{steps}, the steps so far")
        if number and row["window"] != rows[number - 1]["window"] + 1:
            yield _off(row, "window", str(rows[number - 1]["window"] + 1))
        if number and row["start"] < rows[number - 1]["stop"]:
            stopped = rows[number - 1]["stop"]
            yield _off(row, "start", f"after the window before stopped, {stopped!r}")


def _off(row: dict[str, Any], column: str, expected: str) -> Finding:
    place = f"{place_of(row)} window {row['window']}"
    return Finding("windows.csv", place, column, expected, repr(row[column]))


def _loading(campaign: Campaign) -> Iterator[Finding]:
    """Training from files has as many windows of each part, and they take what they took."""
    planned = campaign.meta["suite"].get("windows")
    for trial in filter(reader.reads_files, campaign.trials):
        rows = campaign.rows("loading", trial["trial"])
        for process in rows_of(campaign.ok_rows("processes", trial["trial"])):
            for part in loading.PARTS.values():
                own = rows[(rows["process"] == process["process"]) & (rows["variant"] == part)]
                timed = int((own["window"] >= 0).sum())
                if (own["reason"] == "").all() and timed != planned:
                    yield Finding("loading.csv", place_of(process), part, f"{planned} windows",
                                  str(timed))
        for row in rows_of(rows[rows["window"] >= 0]):
            taken = row["stop"] - row["start"]
            if not (row["steps"] > 0 and taken > 0 and math.isclose(
                    row["seconds"], taken, rel_tol=1e-9, abs_tol=CLOCK_SECONDS)):
                yield Finding("loading.csv", f"{place_of(row)} {row['variant']} window "
                              f"{row['window']:.0f}", "seconds", f"{taken:.12g}",
                              f"{row['seconds']:.12g}")


def _answers(campaign: Campaign) -> Iterator[Finding]:
    """The answers of a process to a test part give the shares that it reports."""
    known = dict(list(campaign.answers.groupby(["trial", "process"])))
    for process in rows_of(campaign.processes[campaign.processes["test_samples"].notna()]):
        rows = known.get((process["trial"], process["process"]), campaign.answers.iloc[:0])
        if len(rows) != process["test_samples"]:
            yield Finding("answers.csv", place_of(process), "sample",
                          f"{process['test_samples']:.0f} samples", str(len(rows)))
            continue
        for column, name in (("test_accuracy", "answer"), ("reference_accuracy", "reference")):
            share = float((rows[name] == rows["label"]).mean())
            if not math.isclose(share, process[column], abs_tol=1e-9):
                yield Finding("answers.csv", place_of(process), name,
                              f"{process[column]:.6g} of them right", f"{share:.6g}")


CHECKS = (_windows, _latencies, _server, _scenarios, _accuracy, _loading, _answers)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def place_of(row: Any) -> str:
    return f"{row['trial']} process {row['process']}"
