"""Checks that the raw records of a campaign fit one another.

Every function returns findings and changes nothing. A lie that keeps its records consistent is not
found here (docs/method/statistics.md).
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pandas as pd

import networks
from analysis.records import reader
from analysis.records.reader import Campaign
from networks import work

CLOCK_SECONDS = 2e-9  # start and stop are written to a nanosecond
WALL_SECONDS = 2.0  # `started` is written in whole seconds
# Calls follow one another and are written to a nanosecond, so they add up to their window.
SUM_OF_CALLS = 1e-4
# LoadGen asks for no sample while it begins and ends, and between two queries of MultiStream.
BUSY_SHARE, TO_BEGIN = 0.5, 2.0
REBOOT_SECONDS = 3600.0  # the two clocks drift apart by less, unless the machine was rebooted


class Finding(NamedTuple):
    """One thing that does not fit: where, what stands there, and what should."""

    file: str
    row: str
    column: str
    expected: str
    found: str


def check(campaign: Campaign) -> list[Finding]:
    """List everything in the records that contradicts something else in them."""
    checks = (_trials, _environments, _leftovers, _processes, _completeness, _one_after_another,
              _windows, _latencies, _server, _scenarios, _accuracy)
    return [finding for each in checks for finding in each(campaign)]


def _trials(campaign: Campaign) -> Iterator[Finding]:
    """What was planned: names once each, and the counts that follow from the network."""
    for name, count in Counter(trial["trial"] for trial in campaign.trials).items():
        if count > 1:
            yield Finding("campaign.json", name, "trials", "each name once", f"{count} times")
    for trial in campaign.trials:
        try:
            network = networks.get(trial["network"])
        except networks.UnknownNetwork:
            continue
        flops = work.flops_per_step(network, trial["global_batch"],
                                    trial.get("mode", "training"))
        counted = {"parameters": network.parameter_count, "flops_per_step": flops}
        for key, value in counted.items():
            if trial[key] != value:
                yield Finding("campaign.json", trial["trial"], key, str(value), str(trial[key]))


def _environments(campaign: Campaign) -> Iterator[Finding]:
    """Every trial that was measured names an environment with its Python and all packages."""
    measured = set(campaign.processes[campaign.processes["status"] == "ok"]["trial"])
    environments = campaign.meta["environments"]
    names = {(f"{trial['framework']}=={trial['release']}", trial.get("side", ""))
             for trial in campaign.trials if trial["trial"] in measured}
    # A side of a comparison may have its own.
    for name in sorted({own if (own := f"{name} of {side}") in environments else name
                        for name, side in names}):
        environment = environments.get(name)
        if environment is None:
            yield Finding("campaign.json", name, "environments",
                          "the environment of measured trials", "none")
            continue
        for key in ("framework", "release", "python", "packages"):
            if not environment.get(key):
                yield Finding("campaign.json", name, f"environments.{key}", "a value",
                              repr(environment.get(key)))
        for package in environment.get("packages") or ():
            if not all(package.partition("==")[::2]):
                yield Finding("campaign.json", name, "environments.packages", "name==version",
                              repr(package))


def _leftovers(campaign: Campaign) -> Iterator[Finding]:
    """Rows that readers leave out: of a finished campaign there are none."""
    for file, kept in (("processes.csv", campaign.processes), ("windows.csv", campaign.windows)):
        rows, whole = reader.count_rows(campaign.folder / file)
        if rows != len(kept) or not whole:
            yield Finding(file, "", "", f"{len(kept)} rows of finished processes", f"{rows} rows")


def _processes(campaign: Campaign) -> Iterator[Finding]:
    for row in _records(campaign.processes) if campaign.joined else ():
        node, stride = row["process"] // campaign.joined["stride"], campaign.joined["stride"]
        if campaign.joined["nodes"][node:node + 1] != [row["node"]]:
            yield Finding("processes.csv", _row(row), "node",
                          f"the node of processes from {node * stride} on", row["node"])
    planned = {trial["trial"]: trial for trial in campaign.trials}
    for row in _in_order(campaign):
        trial = planned[row["trial"]]
        if row["status"] not in ("ok", "failed", "unsupported"):
            yield Finding("processes.csv", _row(row), "status", "ok, failed or unsupported",
                          row["status"])
        if row["status"] != "ok" and not row["reason"]:
            yield Finding("processes.csv", _row(row), "reason", "why it is not ok", "nothing")
        most = _most_processes(campaign, trial)
        if not 0 <= row["process"] < most:
            yield Finding("processes.csv", _row(row), "process", f"0 to {most - 1}",
                          str(row["process"]))
        if trial["status"] != "planned":
            yield Finding("processes.csv", _row(row), "trial",
                          f"no process of an {trial['status']} trial", row["status"])


def _most_processes(campaign: Campaign, trial: dict[str, Any]) -> int:
    """Return how many processes a trial may have: more than planned while `interval` asks."""
    suite, planned = campaign.meta["suite"], int(trial["processes_planned"])
    if campaign.joined:
        return int(campaign.joined["stride"]) * len(campaign.joined["nodes"])
    return max(planned, int(suite.get("processes_most", 0))) if suite.get("interval") else planned


def _completeness(campaign: Campaign) -> Iterator[Finding]:
    """A finished campaign has every planned process, each in a place of its own."""
    if not campaign.meta["finished"]:
        yield Finding("campaign.json", "", "finished", "when it ended",
                      "null: it was interrupted or runs still")
        return
    counts = Counter(campaign.processes["trial"])
    for trial in campaign.trials:
        runs = trial["status"] == "planned"
        planned = trial["processes_planned"] if runs else 0
        most = _most_processes(campaign, trial) if runs else 0
        if not planned <= counts[trial["trial"]] <= most:
            expected = f"{planned} to {most}" if most > planned else str(planned)
            yield Finding("processes.csv", trial["trial"], "process", f"{expected} processes",
                          str(counts[trial["trial"]]))
    orders = sorted(campaign.processes["order"])
    if orders != list(range(len(orders))):
        yield Finding("processes.csv", "", "order", f"0 to {len(orders) - 1}, each once",
                      " ".join(map(str, orders)))


def _one_after_another(campaign: Campaign) -> Iterator[Finding]:
    """Processes are timed one at a time, between the campaign's start and its end, by both clocks.

    They also start one after another, or in groups of at most `prepare_jobs`. Nodes that each ran
    the campaign did so at the same time, by clocks of their own.
    """
    if campaign.joined:
        for node in campaign.joined["nodes"]:
            own = campaign.processes[campaign.processes["node"] == node]
            yield from _one_after_another(replace(
                campaign, meta={**campaign.meta, "joined": None}, processes=own,
                windows=campaign.windows[campaign.windows["process"].isin(own["process"])]))
        return
    windows = campaign.windows.groupby(["trial", "process"])
    spans = windows.agg(start=("start", "min"), stop=("stop", "max"))
    finished = campaign.meta["finished"]
    end = (_seconds(finished) if finished else math.inf) + WALL_SECONDS
    jobs = int(campaign.meta["suite"].get("prepare_jobs", 1))
    # A process cannot have started before the end that stands `jobs` from the last.
    ends = [(_seconds(campaign.meta["started"]), "the campaign")] * jobs
    before_stop, before_offset = -math.inf, math.inf
    for row in _in_order(campaign):
        now = _seconds(row["started"])
        before, begun = ends[-jobs]
        if not before - WALL_SECONDS <= now <= end:
            yield Finding("processes.csv", _row(row), "started",
                          f"after {begun} and before the campaign's end", row["started"])
        if (row["trial"], row["process"]) in spans.index:
            span = spans.loc[(row["trial"], row["process"])]
            offset = now - span["start"]
            if abs(offset - before_offset) < REBOOT_SECONDS and span["start"] < before_stop:
                stopped = f"after {ends[-1][1]} stopped, {before_stop!r}"
                yield Finding("windows.csv", _row(row), "start", stopped, f"{span['start']!r}")
            before_stop, before_offset = float(span["stop"]), offset
            # The next process cannot begin before the windows of this one have passed.
            now += span["stop"] - span["start"]
        ends.append((now, _row(row)))
    before, begun = ends[-1]
    if before > end:
        yield Finding("campaign.json", "", "finished", f"after {begun} stopped", finished)


def _windows(campaign: Campaign) -> Iterator[Finding]:
    # Training to a target has as many as the process needs epochs (`_accuracy`).
    timed_windows = None if reader.target_of(campaign) else campaign.meta["suite"].get("windows")
    windows = dict(list(campaign.windows.groupby(["trial", "process"])))
    for process in campaign.processes.to_dict("records"):
        group = windows.get((process["trial"], process["process"]), campaign.windows.iloc[:0])
        rows = _records(group)
        yield from _in_itself(rows)
        yield from _in_sequence(rows)
        if process["status"] != "ok":
            continue
        timed = [row for row in rows if row["window"] >= 0]
        if not timed or (timed_windows and len(timed) != timed_windows):
            yield Finding("windows.csv", _row(process), "window",
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
        for row in _records(windows[windows["window"] >= 0]):
            nanoseconds = known.get((row["process"], row["window"]), "").split()
            place = f"{_row(row)} window {row['window']}"
            if len(nanoseconds) != row["steps"]:
                yield Finding("latencies.csv", place, "nanoseconds", f"{row['steps']} calls",
                              str(len(nanoseconds)))
            elif not math.isclose(1e-9 * sum(map(float, nanoseconds)), row["seconds"],
                                  rel_tol=SUM_OF_CALLS):
                yield Finding("latencies.csv", place, "nanoseconds",
                              f"calls of {row['seconds']:.6g} s together",
                              f"{1e-9 * sum(map(float, nanoseconds)):.6g} s")


def _server(campaign: Campaign) -> Iterator[Finding]:
    """Each rate of requests fits its latencies by Little's law: L = lambda W."""
    for row in _records(campaign.server):
        wanted = row["requests"] / row["seconds"] * row["mean_latency_seconds"]
        if not math.isclose(row["in_system"], wanted, rel_tol=SUM_OF_CALLS):
            yield Finding("server.csv", f"{_row(row)} rate {row['rate']:.6g}", "in_system",
                          f"{wanted:.6g} by Little's law", f"{row['in_system']:.6g}")


def _scenarios(campaign: Campaign) -> Iterator[Finding]:
    """At LoadGen's rate of samples the calls that the worker counted take the time they took."""
    played = campaign.scenarios[campaign.scenarios["samples_per_second"].notna()]
    for row in _records(played):
        call = row["batch"] / row["samples_per_second"]
        least = BUSY_SHARE * row["seconds"] - TO_BEGIN
        # The last batch may hold fewer samples.
        most = row["seconds"] * (1 + SUM_OF_CALLS) + call
        if not least <= row["calls"] * call <= most:
            yield Finding("scenarios.csv", f"{_row(row)} {row['scenario']}", "samples_per_second",
                          f"{row['calls']} calls in {row['seconds']:.6g} s",
                          f"{row['samples_per_second']:.6g}")


def _accuracy(campaign: Campaign) -> Iterator[Finding]:
    """Epochs follow one another, each with its window, and a process ends where it should."""
    until = reader.target_of(campaign)
    if not until:
        return
    windows = dict(list(campaign.windows.groupby(["trial", "process"])))
    for (trial, process), group in campaign.accuracy.groupby(["trial", "process"]):
        own = windows.get((trial, process), campaign.windows.iloc[:0])
        timed = _records(own[own["window"] >= 0])
        rows, step, seconds = _records(group), 0, 0.0
        for number, row in enumerate(rows):
            wanted: dict[str, Any] = {"epoch": number + 1,
                                      "seed": campaign.meta["seed"] + process}
            if number < len(timed):
                # Two steps of an epoch are not in its window.
                whole = timed[number]["steps"] + 2
                step, seconds = step + whole, seconds + timed[number]["step_seconds"] * whole
                wanted |= {"step": step, "seconds": seconds}
            yield from (Finding("accuracy.csv", f"{_row(row)} epoch {row['epoch']}", column,
                                f"{value:.12g}", f"{row[column]:.12g}")
                        for column, value in wanted.items()
                        if not math.isclose(row[column], value, rel_tol=1e-9))
            if row["test_accuracy"] >= until["target"] and number + 1 < len(rows):
                yield Finding("accuracy.csv", f"{_row(row)} epoch {row['epoch']}", "test_accuracy",
                              "no further epoch at the target", str(row["test_accuracy"]))
    counts = campaign.accuracy.groupby(["trial", "process"])["epoch"].count()
    last = campaign.accuracy.groupby(["trial", "process"])["test_accuracy"].last()
    for row in _records(campaign.processes[campaign.processes["status"] == "ok"]):
        key = (row["trial"], row["process"])
        own = windows.get(key, campaign.windows.iloc[:0])
        timed_count = int((own["window"] >= 0).sum())
        if counts.get(key, 0) != timed_count:
            yield Finding("accuracy.csv", _row(row), "epoch", f"{timed_count}, one a timed window",
                          str(counts.get(key, 0)))
        if not last.get(key, 0.0) >= until["target"]:
            yield Finding("accuracy.csv", _row(row), "test_accuracy",
                          f"{until['target']:g} or more at last", str(last.get(key)))


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
    place = f"{_row(row)} window {row['window']}"
    return Finding("windows.csv", place, column, expected, repr(row[column]))


def _in_order(campaign: Campaign) -> list[dict[str, Any]]:
    return _records(campaign.processes.sort_values("order"))


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _row(row: Any) -> str:
    return f"{row['trial']} process {row['process']}"


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.nan  # every comparison with it fails, so its row is named
