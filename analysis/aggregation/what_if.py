"""Predicts weak scaling on more devices and on other links: the table what_if.csv."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from analysis.aggregation import links, predictions
from analysis.aggregation.links import Fit
from analysis.records.reader import Campaign
from analysis.statistics.bootstrap import Estimate
from analysis.strategies import table as strategies
from analysis.trials import phases
from analysis.trials.remarks import shared_cores

BEYOND = (8, 16)


class Link(NamedTuple):
    """Seconds of latency a message, bytes a second in each direction, least seconds a message."""

    latency_seconds: float
    bytes_per_second: float
    floor_seconds: float = 0.0

    def ring_seconds(self, devices: int, size: float) -> float:
        """Return the time in which a ring of devices sums `size` bytes of each."""
        messages = 2 * (devices - 1)
        return max(messages * self.floor_seconds, messages * self.latency_seconds
                   + messages / devices * size / self.bytes_per_second)


# Assumed, not measured.
OTHER_LINKS = {
    "PCIe 3 as in the article": Link(2e-5, 8e9), "PCIe 5, 16 lanes": Link(2e-5, 55e9),
    "25 Gb/s Ethernet": Link(5e-5, 25e9 / 8), "100 Gb/s InfiniBand": Link(1e-5, 100e9 / 8),
    "400 Gb/s InfiniBand": Link(1e-5, 400e9 / 8), "NVLink 4": Link(1e-5, 450e9),
}
# A trial and the parts of its step.
Timed = tuple[dict[str, Any], dict[str, Estimate]]


def predict(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Predict weak scaling on more devices and on other links.

    The model is a ring all-reduce in buckets behind the backward pass. All else of a step is that
    of one trial: the framework's with the default strategy on the most devices (on a CPU, the most
    that have cores of their own). This machine's link is that of the campaign's wire. Its rows also
    have the measured efficiency, where as many devices were measured.
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
        candidates = {**({ours: bus(fitted)} if fitted else {}), **OTHER_LINKS}
        # The first trial of each number of devices.
        there = {each[0]["devices"]: each for each in reversed(own)}
        for link, each in candidates.items():
            for devices in sorted({2, 4, *BEYOND, *there}):
                found = predictions.overlapped(trial["network"], parts["backward"].value, "bucket",
                                               partial(each.ring_seconds, devices))
                exposed = found.exposed_seconds + copies
                step = alone + exposed
                measured, crowded = math.nan, ""
                if link == ours and devices in there:
                    measured, crowded = _measured(campaign, there[devices], trial)
                rows.append({
                    "campaign": campaign.meta["name"],
                    **{column: trial[column] for column in predictions.WORKLOAD}, "link": link,
                    **each._asdict(), "devices": devices,
                    "step_seconds": step, "exposed_seconds": exposed,
                    "samples_per_second": trial["batch"] * devices / step,
                    "efficiency": alone / step, "measured_efficiency": measured,
                    **predictions.further(trial),
                    "remark": "; ".join(filter(None, [too_high * bool(shared), crowded])),
                })
    return pd.DataFrame(rows)


def _measured(campaign: Campaign, timed: Timed, base: Mapping[str, Any]) -> tuple[float, str]:
    """Return the efficiency that a trial reached, and a remark if its devices share cores.

    The `base` trial, on which the prediction rests, has that remark already.
    """
    trial, parts = timed
    crowded = "" if trial is base else shared_cores(campaign, trial)
    return (predictions.alone_seconds(parts) / parts["step"].value,
            f"measured where {crowded}" if crowded else "")


def bus(fit: Fit) -> Link:
    """Return the link on which a ring takes as long as the fitted all-reduce of n devices."""
    messages = 2 * (fit.devices - 1)
    return Link(fit.latency_seconds / messages, messages / fit.devices * fit.bytes_per_second,
               fit.floor_seconds / messages)


def _workloads(campaign: Campaign) -> list[list[Timed]]:
    """Return the trials of each workload with the default strategy, and the parts of their steps.

    Trials whose devices share no cores come first, because sharing slows computing down. Of these
    the one on the most devices is the first.
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
