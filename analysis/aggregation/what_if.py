"""Predicts weak scaling on more devices and on other links: the table what_if.csv."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.aggregation import links, predictions
from analysis.aggregation.links import Fit
from analysis.records.reader import Campaign
from analysis.statistics.bootstrap import Estimate
from analysis.strategies import table as strategies
from analysis.trials import phases
from analysis.trials.remarks import shared_cores

BEYOND = (8, 16)
# seconds of latency per message, bytes per second and direction; assumed, not measured
OTHER_LINKS = {
    "PCIe 3 as in the article": (2e-5, 8e9), "PCIe 5, 16 lanes": (2e-5, 55e9),
    "25 Gb/s Ethernet": (5e-5, 25e9 / 8), "100 Gb/s InfiniBand": (1e-5, 100e9 / 8),
    "400 Gb/s InfiniBand": (1e-5, 400e9 / 8), "NVLink 4": (1e-5, 450e9),
}
# a trial and the parts of its step
Timed = tuple[dict[str, Any], dict[str, Estimate]]


def predict(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Predict weak scaling on more devices and on other links.

    The model is a ring all-reduce in buckets behind the backward pass. Forward, backward, update
    and the copies of DistributedDataParallel are those of the framework's trial with the default
    strategy on the most devices (on a CPU, the most that have cores of their own). This machine's
    link is that of the campaign's wire. Its rows also have the measured efficiency, where as many
    devices were measured.
    """
    rows = []
    for own in _workloads(campaign):
        trial, parts = own[0]
        wire = predictions.wire_of(campaign, trial)
        ours = "this machine's" if wire == "default" else f"this machine's, {wire}"
        alone, shared = predictions.alone_seconds(parts), shared_cores(campaign, trial)
        too_high = f"computing was timed where {shared}, so efficiency comes out too high"
        chosen = links.chosen(fits, wire, trial["devices"])
        fitted, copies = chosen.get("all_reduce"), predictions.copies_seconds(trial, chosen)
        candidates = {**({ours: bus(fitted)} if fitted else {}),
                      **{link: (*each, 0.0) for link, each in OTHER_LINKS.items()}}
        # the first trial of each number of devices
        there = {each[0]["devices"]: each for each in reversed(own)}
        for name, (latency, bandwidth, floor) in candidates.items():
            for devices in sorted({2, 4, *BEYOND, *there}):
                ring = _ring_seconds(devices, latency, bandwidth, floor)
                found = predictions.overlapped(
                    trial["network"], parts["backward"].value, "bucket", ring)
                exposed = found.exposed_seconds + copies
                step = alone + exposed
                measured = math.nan
                remarks = [too_high] if shared else []
                if name == ours and devices in there:
                    other, timed = there[devices]
                    measured = predictions.alone_seconds(timed) / timed["step"].value
                    if other is not trial and (crowded := shared_cores(campaign, other)):
                        remarks.append(f"measured where {crowded}")
                rows.append({
                    "campaign": campaign.meta["name"],
                    **{column: trial[column] for column in predictions.WORKLOAD}, "link": name,
                    "latency_seconds": latency, "bytes_per_second": bandwidth,
                    "floor_seconds": floor, "devices": devices,
                    "step_seconds": step, "exposed_seconds": exposed,
                    "samples_per_second": trial["batch"] * devices / step,
                    "efficiency": alone / step, "measured_efficiency": measured,
                    **predictions.further(trial), "remark": "; ".join(remarks),
                })
    return pd.DataFrame(rows)


def bus(fit: Fit) -> tuple[float, float, float]:
    """The link on which a ring would take as long as the fitted all-reduce of n devices.

    Latency and floor in seconds per message, and bytes per second: (latency, bytes, floor).
    """
    n = fit.devices
    messages = 2 * (n - 1)
    return (fit.latency_seconds / messages, messages / n * fit.bytes_per_second,
            fit.floor_seconds / messages)


def _ring_seconds(devices: int, latency: float, bandwidth: float, floor: float) -> Any:
    messages = 2 * (devices - 1)
    return lambda size: max(messages * floor,
                            messages * latency + messages / devices * size / bandwidth)


def _workloads(campaign: Campaign) -> list[list[Timed]]:
    """The trials of each workload with the default strategy, and the parts of their steps.

    Trials whose devices share no cores come first, because sharing slows computing down; then
    those on the most devices.
    """
    found: dict[tuple[Any, ...], list[Timed]] = {}
    for trial in predictions.several(campaign):
        parts = phases.of_trial(campaign, trial["trial"])
        timed = math.isfinite(predictions.alone_seconds(parts))
        if timed and strategies.of(trial["strategy"]).default:
            key = (*(trial[column] for column in predictions.WORKLOAD),
                   *predictions.further(trial).values())
            found.setdefault(key, []).append((trial, parts))
    return [sorted(own, key=lambda each: (bool(shared_cores(campaign, each[0])),
                                          -each[0]["devices"])) for own in found.values()]
