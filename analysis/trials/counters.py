"""Integrates counters.csv over each timed window: bytes and joules per mini-batch, throttling.

Bytes count from the last reading before a window to the first after it, because nothing trains
between windows. Joules, and PCIe bytes without readings at the edges, are interpolated. A trial's
value is the median over processes of the median over windows. Windows with broken counters are
left out and reported.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.columns import EDGE
from analysis.records.reader import Campaign
from analysis.trials import cross_check
from analysis.trials.cross_check import Rows, Values, devices_of, interpolate, readings, split


class Quantity(NamedTuple):
    """A column of counters.csv, its source as the column `broken` names it, and its name."""

    counter: str
    source: str
    name: str


# By column of trials.csv. What one GPU sends over NVLink another receives, so only sent bytes
# count.
QUANTITIES = {
    "pcie_rx_bytes_per_step": Quantity("pcie_rx_bytes", "pcie", "PCIe bytes"),
    "pcie_tx_bytes_per_step": Quantity("pcie_tx_bytes", "pcie", "PCIe bytes"),
    "nvlink_bytes_per_step": Quantity("nvlink_tx_bytes", "nvlink", "NVLink bytes"),
    "energy_joules_per_step": Quantity("energy_joules", "energy", "energy"),
}
# Sources that are read within windows, not only at their edges.
READ_WITHIN = ("pcie", "energy")
# Bits of nvmlClocksEventReasons; idle, application clocks and sync boost are no faults.
THROTTLES = {
    0x04: "software power cap", 0x08: "hardware slowdown", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "hardware power brake",
}
# Processes of one trial whose bytes a step differ by more did different things.
UNLIKE, UNLIKE_BYTES = 3.0, 2.0**20


@dataclass(frozen=True)
class Readings:
    """A trial's samples by process and device, and its windows by process, all and the timed ones.
    """

    devices: list[str]
    samples: Mapping[Any, Rows]
    every: Mapping[Any, Rows]
    timed: Mapping[Any, Rows]


@dataclass
class Found:
    """Columns of trials.csv from one trial's counters, and remarks."""

    columns: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def sent_per_step(campaign: Campaign, trial: str, first: int) -> float:
    """Return the bytes that all nodes' networks sent in a step, from window `first` on.

    That is the median over processes of the median over windows; nan on one node.
    """
    rows = campaign.rows("network", trial)
    rows = rows[rows["window"] >= first]
    each = (rows["network_tx_bytes"] / rows["steps"]).groupby(rows["process"]).median()
    return float(each.median()) if len(each) else np.nan


def of_trial(campaign: Campaign, trial: dict[str, Any]) -> Found:
    """Integrate the counters of a trial's ok processes, summed over its devices."""
    found = Found()
    windows = timed_windows(campaign, trial["trial"])
    own = campaign.rows("counters", trial["trial"])
    if windows.empty or own.empty:
        return found
    samples = split(own, ["process", "device"], [
        "seconds", "kind", "broken", "event_reasons",
        *(quantity.counter for quantity in QUANTITIES.values())])
    every = split(campaign.rows("windows", trial["trial"]), "process", ["start", "stop"])
    timed = split(windows, "process", ["start", "stop", "steps"])
    read = Readings(devices_of(trial), samples, every, timed)
    for column in QUANTITIES:
        _note_quantity(found, own, read, column)
    if trial["device_kind"] != "cpu":
        _note_throttling(found, read)
        _note_coverage(found, own)
        # All of its workers but one compute nothing, and hold memory.
        suite = campaign.meta["suite"]
        workers = int(suite.get("prepare_jobs", 1)) * (2 if suite.get("keep_workers") else 1)
        _note_company(found, own[own["device"].isin(read.devices)], windows, workers)
        found.remarks += cross_check.disagreements(cross_check.ratios(campaign, trial))
    found.remarks = list(dict.fromkeys(found.remarks))
    return found


def _note_quantity(found: Found, own: pd.DataFrame, read: Readings, column: str) -> None:
    """Note a column of trials.csv, or why it is not measured; `own` are the rows of a trial."""
    quantity = QUANTITIES[column]
    known = set(own.loc[own[quantity.counter].notna(), "device"])
    if not known.issuperset(read.devices):
        found.remarks += _unknown(own, read.devices, known, quantity)
        return
    values, reasons = _per_step(read, quantity)
    each = pd.Series({process: pd.Series(those).dropna().median()
                      for process, those in values.items()})
    found.columns[column] = float(each.dropna().median())
    if quantity.source == "pcie" and each.max() > max(UNLIKE * each.min(), UNLIKE_BYTES):
        direction = "received" if "rx" in column else "sent"
        found.remarks.append(
            f"PCIe bytes {direction} are unlike from process to process: "
            f"{each.min() / 2**20:,.3g} to {each.max() / 2**20:,.3g} MiB a step")
    if reasons:
        why, _ = Counter(reasons).most_common(1)[0]
        count = sum(len(windows["start"]) for windows in read.timed.values())
        found.remarks.append(f"{quantity.name} of {len(reasons)} of {count} windows "
                             f"not measured: {why}")


def timed_windows(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the timed windows of a trial's ok processes."""
    own = campaign.ok_rows("windows", trial)
    return own[own["window"] >= 0].reset_index(drop=True)


def moved_around(rows: Rows, column: str, windows: Rows, every: Rows) -> Values:
    """Return a column's change from the last reading before each window to the first after it.

    nan where a reading is missing, or where another of `every` window lies between in part.
    """
    times, totals = readings(rows, column)
    before = np.searchsorted(times, windows["start"], side="right") - 1
    after = np.searchsorted(times, windows["stop"], side="left")
    found = np.full(len(before), np.nan)
    for number, (first, last) in enumerate(zip(before, after, strict=True)):
        if first < 0 or last == len(times):
            continue
        between = (every["stop"] > times[first]) & (every["start"] < times[last])
        # Only the window itself.
        if between.sum() == 1:
            found[number] = totals[last] - totals[first]
    return found


def throttled(rows: Rows, windows: Rows) -> NDArray[np.int64]:
    """Return the bits of `THROTTLES` set during each window; `rows` are one GPU's samples."""
    fast = rows.where(~np.isnan(rows["event_reasons"]))
    reasons = fast["event_reasons"].astype(np.int64) & sum(THROTTLES)
    during = np.where(_overlaps(fast, windows), reasons[:, None], 0)
    return np.asarray(np.bitwise_or.reduce(during, axis=0))


def _per_step(read: Readings, quantity: Quantity) -> tuple[dict[int, Values], list[str]]:
    """Integrate a counter over timed windows: units a step by process, and why each is nan."""
    values: dict[int, Values] = {}
    reasons: dict[tuple[int, int], str] = {}
    for process, windows in read.timed.items():
        values[process] = sums = np.zeros(len(windows["start"]))
        for device in read.devices:
            rows = read.samples[process, device]
            broken = _breaks(rows, windows, quantity.source)
            moved = _moved(rows, windows, read.every[process], quantity)
            each = np.where(broken == "", moved / windows["steps"], np.nan)
            sums += each
            for place in np.flatnonzero(np.isnan(each)):
                why = broken[place] or f"no samples of {device} on both sides of it alone"
                reasons.setdefault((process, int(place)), why)
    return values, list(reasons.values())


def _moved(rows: Rows, windows: Rows, every: Rows, quantity: Quantity) -> Values:
    """Return by how much a counter grew in each window; nan where that is unknown."""
    within = quantity.source in READ_WITHIN
    moved = np.full(len(windows["start"]), np.nan)
    if quantity.source != "energy":
        outside = rows.where(rows["kind"] == EDGE) if within else rows
        moved = moved_around(outside, quantity.counter, windows, every)
    if within:
        begun, ended = (interpolate(rows, quantity.counter, windows[edge])
                        for edge in ("start", "stop"))
        moved = np.where(np.isnan(moved), ended - begun, moved)
    return moved


def _unknown(own: pd.DataFrame, devices: list[str], known: set[str],
             quantity: Quantity) -> list[str]:
    """Return why a quantity is not measured; campaign.json says it if no device supports it."""
    missing = [device for device in devices if device not in known]
    rows = own[own["device"].isin(missing)]
    nowhere = len(missing) == len(devices)
    answered = rows[[each.counter for each in QUANTITIES.values()]].notna().any(axis=None)
    # A GPU that was lost once and has other counters does not have this one.
    sources = (quantity.source,) if nowhere and answered else (quantity.source, "gpu")
    why = next(filter(None, (_why(text, sources) for text in rows["broken"])), "")
    if nowhere and not why:
        return []
    reason = f" ({why})" if why else ""
    return [f"{quantity.name} not measured: no samples of {', '.join(missing)}{reason}"]


def _why(broken: str, sources: tuple[str, ...]) -> str:
    """Return the reason in a row's `broken` cell that concerns some sources."""
    parts = [part.partition(": ") for part in broken.split("; ")]
    return next((text for what, _, text in parts if what in sources), "")


def _breaks(rows: Rows, windows: Rows, source: str) -> NDArray[np.object_]:
    """Return for each window why its counter of `source` is broken, or ""."""
    found = np.full(len(windows["start"]), "", dtype=object)
    broken = rows["broken"] != ""
    for kind in sorted(set(rows["kind"][broken])):
        of_kind = rows["kind"] == kind
        overlaps = _overlaps(rows.where(of_kind), windows)[broken[of_kind]]
        for text, during in zip(rows["broken"][of_kind & broken], overlaps, strict=True):
            found[during] = _why(text, (source, "gpu")) or found[during]
    return found


def _overlaps(rows: Rows, windows: Rows) -> NDArray[np.bool_]:
    """Return whether each row (down) covers some of each window (across).

    A row covers the time since the row before it.
    """
    since = np.concatenate([[-np.inf], rows["seconds"][:-1]])[:len(rows["seconds"])]
    after = rows["seconds"][:, None] >= windows["start"]
    return np.asarray(after & (since[:, None] <= windows["stop"]))


def _note_throttling(found: Found, read: Readings) -> None:
    if all(np.isnan(rows["event_reasons"]).all() for rows in read.samples.values()):
        return
    bits: list[int] = []
    for process, windows in read.timed.items():
        each = [throttled(read.samples[process, device], windows) for device in read.devices]
        bits += np.bitwise_or.reduce(each).tolist()
    count = sum(map(bool, bits))
    found.columns["throttled_windows"] = count
    if count:
        names = ", ".join(name for bit, name in THROTTLES.items()
                          if any(reasons & bit for reasons in bits))
        found.remarks.append(f"{count} of {len(bits)} windows throttled: {names}")


def _note_coverage(found: Found, own: pd.DataFrame) -> None:
    """Note which share of the time 20 ms samples of the throughput cover."""
    sampled = own[own["pcie_covered_seconds"].notna()]
    if not sampled.empty:
        groups = sampled.groupby(["process", "device"])[["pcie_covered_seconds", "seconds"]]
        covered, seconds = (groups.max() - groups.min()).sum()
        found.remarks.append(
            f"PCIe bytes from 20 ms samples of {100 * covered / seconds:.0f} % of the time")


def _note_company(found: Found, own: pd.DataFrame, windows: pd.DataFrame, expected: int) -> None:
    """Note more processes than the campaign's own on the trial's GPUs."""
    during = own["seconds"].between(windows["start"].min(), windows["stop"].max())
    most = own.loc[during, "processes"].max()
    if most > expected:
        found.remarks.append(f"{most:.0f} processes were on one GPU")
