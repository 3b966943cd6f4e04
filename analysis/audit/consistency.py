"""Checks that the raw records of a campaign fit one another.

Every function returns findings and changes nothing. A lie that keeps its records consistent is not
found here (docs/method/statistics.md).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import networks
from analysis.audit import timings
from analysis.audit.timings import Finding, place_of, rows_of
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.records.tables import count_rows
from networks import work

WALL_SECONDS = 2.0  # `started` is written in whole seconds
REBOOT_SECONDS = 3600.0  # the two clocks drift apart by less, unless the machine was rebooted


def check(campaign: Campaign) -> list[Finding]:
    """List everything in the records that contradicts something else in them."""
    checks = (_trials, _environments, _leftovers, _processes, _completeness, _one_after_another,
              *timings.CHECKS)
    return [finding for each in checks for finding in each(campaign)]


def _trials(campaign: Campaign) -> Iterator[Finding]:
    """What was planned: names once each, and the counts that follow from the network."""
    for name, count in Counter(trial["trial"] for trial in campaign.trials).items():
        if count > 1:
            yield Finding("campaign.json", name, "trials", "each name once", f"{count} times")
    for trial in campaign.trials:
        network = networks.known(trial["network"])
        if not network:
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
    names = {_environment(trial, environments) for trial in campaign.trials
             if trial["trial"] in measured}
    for name in sorted(names):
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


def _environment(trial: dict[str, Any], environments: Collection[str]) -> str:
    """Name a trial's environment; one that trains from files, or a side, may have its own."""
    name = f"{trial['framework']}=={trial['release']}"
    if reader.reads_files(trial) and name + reader.FOR_FILES in environments:
        name += reader.FOR_FILES
    of_side = f"{name} of {trial.get('side', '')}"
    name = of_side if of_side in environments else name
    with_loadgen = name + reader.FOR_SCENARIOS
    return with_loadgen if reader.infers(trial) and with_loadgen in environments else name


def _leftovers(campaign: Campaign) -> Iterator[Finding]:
    """Rows that readers leave out: of a finished campaign there are none."""
    for file, kept in (("processes.csv", campaign.processes), ("windows.csv", campaign.windows)):
        rows, whole = count_rows(campaign.folder / file)
        if rows != len(kept) or not whole:
            yield Finding(file, "", "", f"{len(kept)} rows of finished processes",
                          f"{rows} rows{'' if whole else ' and an unfinished line'}")


def _processes(campaign: Campaign) -> Iterator[Finding]:
    for row in rows_of(campaign.processes) if campaign.joined else ():
        stride, nodes = campaign.joined["stride"], campaign.joined["nodes"]
        node = row["process"] // stride
        if nodes[node:node + 1] != [row["node"]]:
            yield Finding("processes.csv", place_of(row), "node",
                          f"the node of processes from {node * stride} on", row["node"])
    planned = {trial["trial"]: trial for trial in campaign.trials}
    for row in _in_order(campaign):
        trial = planned[row["trial"]]
        if row["status"] not in ("ok", "failed", "unsupported"):
            yield Finding("processes.csv", place_of(row), "status", "ok, failed or unsupported",
                          row["status"])
        if row["status"] != "ok" and not row["reason"]:
            yield Finding("processes.csv", place_of(row), "reason", "why it is not ok", "nothing")
        most = _most_processes(campaign, trial)
        if not 0 <= row["process"] < most:
            yield Finding("processes.csv", place_of(row), "process", f"0 to {most - 1}",
                          str(row["process"]))
        if trial["status"] != "planned":
            yield Finding("processes.csv", place_of(row), "trial",
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
            yield Finding("processes.csv", place_of(row), "started",
                          f"after {begun} and before the campaign's end", row["started"])
        if (row["trial"], row["process"]) in spans.index:
            span = spans.loc[(row["trial"], row["process"])]
            offset = now - span["start"]
            if abs(offset - before_offset) < REBOOT_SECONDS and span["start"] < before_stop:
                stopped = f"after {ends[-1][1]} stopped, {before_stop!r}"
                yield Finding("windows.csv", place_of(row), "start", stopped, f"{span['start']!r}")
            before_stop, before_offset = float(span["stop"]), offset
            # The next process cannot begin before the windows of this one have passed.
            now += span["stop"] - span["start"]
        elif row["status"] == "unsupported":
            # After its trial's first process it is recorded, not started.
            continue
        ends.append((now, place_of(row)))
    before, begun = ends[-1]
    if before > end:
        yield Finding("campaign.json", "", "finished", f"after {begun} stopped", finished)


def _in_order(campaign: Campaign) -> list[dict[str, Any]]:
    return rows_of(campaign.processes.sort_values("order"))


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.nan  # every comparison with it fails, so its row is named
