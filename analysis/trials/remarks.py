"""What a reader must know of a measured row: the remarks in the column `reason` of trials.csv."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.proof import sameness
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap, warm_up


def dirt(campaign: Campaign) -> list[str]:
    """Return what --allow-dirty let pass and what had changed when the campaign was resumed."""
    return [*(f"measured on a dirty machine: {text}" for text in campaign.meta.get("dirty") or ()),
            *(f"resumed {text}" for text in campaign.meta.get("resumed") or ())]


def lost(trial: Mapping[Any, Any], processes: pd.DataFrame) -> list[str]:
    """Return how many processes of a measured row gave no time, and why the first one did not."""
    planned = max(trial["processes_planned"], len(processes))
    unwell = processes[processes["status"] != "ok"]
    return [f"{len(unwell)} of {planned} processes {unwell['status'].iloc[0]}: "
            f"{unwell['reason'].iloc[0]}"] if len(unwell) else []


def of_processes(trial: dict[str, Any], processes: pd.DataFrame,
                 of_losses: Sequence[str]) -> list[str]:
    """Return what a reader must know about the processes of a measured row and their losses."""
    remarks = lost(trial, processes)
    ok = processes[processes["status"] == "ok"]
    planned = max(trial["processes_planned"], len(processes))
    repeated = ok[ok["reason"] != ""]
    if len(repeated):
        remarks.append(f"{len(repeated)} of {planned} processes {repeated['reason'].iloc[0]}")
    if len(processes) < planned:
        remarks.append(f"{len(processes)} of {planned} processes so far")
    remarks += of_losses
    rounded = ok.loc[ok["check"] != "different", "copies_error"].max()
    if rounded == rounded:
        remarks.append("the devices' copies of the parameters differ by rounding: "
                       f"at most {rounded:.1e} of what training changed")
    return remarks


def units(ok: pd.DataFrame, times: Sequence[bootstrap.Times]) -> list[str]:
    """Return whether processes or nodes are too few for an interval, and how far nodes differ."""
    nodes = isinstance(times, bootstrap.OfNodes)
    count, least = len(times) if nodes else len(ok), bootstrap.MINIMUM_PROCESSES
    few = f"no interval: {count} of at least {least} {'nodes' if nodes else 'processes'}"
    medians = [float(np.median(each)) for each in times]
    spread = f"repeated on {count} nodes: the slowest takes " \
             f"{100 * (max(medians) / min(medians) - 1):.2g} % longer than the fastest"
    return [*([few] if count < least else []), *([spread] if nodes and count > 1 else [])]


def sharing(campaign: Campaign, trial: dict[str, Any]) -> list[str]:
    """Return what several devices share: cores of a CPU, and no statistics of batch norm."""
    if trial["devices"] == 1:
        return []
    shared = shared_cores(campaign, trial)
    remarks = [f"its {shared}"] if shared else []
    if sameness.has_batch_norm(trial["network"]):
        remarks.append("each device normalises its own samples: losses compared with rows of as "
                       "many devices only")
    return remarks


def shared_cores(campaign: Campaign, trial: Mapping[str, Any]) -> str:
    """Say that a trial's devices share a CPU with too few cores; "" where each has its own."""
    cores = (campaign.meta["machine"].get("cpu") or {}).get("allowed")
    local = trial["devices"] // trial.get("nodes", 1)
    if trial["device_kind"] == "cpu" and cores and local > 1 and local * trial["threads"] > cores:
        return f"{local} devices share {cores} cores"
    return ""


def spread(campaign: Campaign, times: Sequence[bootstrap.Times],
            step: bootstrap.Estimate) -> list[str]:
    """Return which windows were left out, whether the others trend, and if the interval is wide."""
    remarks = []
    dropped = warm_up.leading(times)
    if dropped:
        excess = np.median([np.median(windows[:dropped]) / np.median(windows[dropped:])
                            for windows in times]) - 1
        first = "first timed window" if dropped == 1 else f"first {dropped} timed windows"
        remarks.append(f"warm-up: the {first} of each process left out, "
                       f"{100 * excess:.2g} % slower")
    drift = warm_up.drift([windows[dropped:] for windows in times])
    if drift:
        remarks.append(f"windows still trend: the later half is {100 * abs(drift):.2g} % "
                       f"{'slower' if drift > 0 else 'faster'}")
    asked = campaign.meta["suite"].get("interval")
    if asked and step.half_width > asked:
        remarks.append(f"interval of {100 * step.half_width:.2g} % to either side after "
                       f"{step.processes} {'nodes' if campaign.joined else 'processes'}, "
                       f"{100 * asked:.2g} % asked for")
    return remarks
