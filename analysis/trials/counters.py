"""Integrates counters.csv over each timed window: bytes and joules per mini-batch, throttled windows, and what stands against them.

Bytes count from the last reading before a window to the first after it, for nothing trains between windows: what a step moves in a
burst at its end would be lost to a reading milliseconds later. Joules, which flow all the time, are interpolated at a window's
edges, and so are PCIe's bytes in campaigns of older releases, whose readings do not tell edges apart. A trial's value is the median
over processes of the median over windows, as with times. Windows whose counters were broken are left out, and said.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.reader import EDGE, Campaign

Values = NDArray[np.float64]

QUANTITIES = {  # column of trials.csv: column of counters.csv, what breaks it, its name
    "pcie_rx_bytes_per_step": ("pcie_rx_bytes", "pcie", "PCIe bytes"),
    "pcie_tx_bytes_per_step": ("pcie_tx_bytes", "pcie", "PCIe bytes"),
    "nvlink_bytes_per_step": ("nvlink_tx_bytes", "nvlink", "NVLink bytes"),  # what one GPU sends another receives
    "energy_joules_per_step": ("energy_joules", "energy", "energy"),
}
READ_WITHIN = ("pcie", "energy")  # windows, besides at their edges
THROTTLES = {  # bits of nvml.h, nvmlClocksEventReasons; idle, application clocks and sync boost are no faults
    0x04: "software power cap", 0x08: "hardware slowdown", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "hardware power brake",
}
DISAGREEMENT = 0.1  # from here on two ways to measure one thing are said to differ
LEAST_SECONDS = 2.0  # of two readings of the energy counter, which moves in steps of some 0.1 s
UNLIKE, UNLIKE_BYTES = 3.0, 2.0**20  # processes of one trial whose bytes a step differ by more were not doing one thing
LEAST_BYTES = 1e8  # less traffic than this between GPM's samples is noise of other programs


@dataclass
class Found:
    """What the counters say of one trial: columns of trials.csv, and remarks."""

    columns: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def of_trial(campaign: Campaign, trial: dict[str, Any]) -> Found:
    """Integrate the counters of a trial's processes that ended well. Bytes and joules a step are sums over its devices."""
    found = Found()
    windows, every = timed_windows(campaign, trial["trial"]), campaign.windows[campaign.windows["trial"] == trial["trial"]]
    own = campaign.counters[campaign.counters["trial"] == trial["trial"]]
    devices = devices_of(trial)
    if windows.empty or own.empty:
        return found
    samples = defaultdict(lambda: own.iloc[:0], list(own.groupby(["process", "device"])))
    for column, (counter, link, name) in QUANTITIES.items():
        known = set(own.loc[own[counter].notna(), "device"])
        if not known.issuperset(devices):
            found.remarks += _unknown(own, devices, known, (link, name))
            continue
        values, reasons = _per_step(samples, every, windows, devices, (counter, link))
        each = windows.assign(value=values).groupby("process")["value"].median()
        found.columns[column] = float(each.median())
        if link == "pcie" and each.max() > max(UNLIKE * each.min(), UNLIKE_BYTES):
            direction = "received" if "rx" in column else "sent"
            found.remarks.append(f"PCIe bytes {direction} are unlike from process to process: "
                                 f"{each.min() / 2**20:,.3g} to {each.max() / 2**20:,.3g} MiB a step")
        if reasons:
            why, _ = Counter(reasons).most_common(1)[0]
            found.remarks.append(f"{name} of {len(reasons)} of {len(windows)} windows not measured: {why}")
    if trial["device_kind"] != "cpu":
        _note_throttling(found, own, windows, devices)
        _note_coverage(found, own)
        suite = campaign.meta["suite"]  # of its workers all but one compute nothing, and hold memory
        workers = int(suite.get("prepare_jobs", 1)) * (2 if suite.get("keep_workers") else 1)
        _note_company(found, own[own["device"].isin(devices)], windows, workers)
        found.remarks += _disagreements(cross_check(campaign, trial))
    found.remarks = list(dict.fromkeys(found.remarks))
    return found


def timed_windows(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the timed windows of a trial's processes that ended well."""
    ok = campaign.processes[(campaign.processes["trial"] == trial) & (campaign.processes["status"] == "ok")]
    timed = campaign.windows[(campaign.windows["trial"] == trial) & (campaign.windows["window"] >= 0)]
    return timed[timed["process"].isin(ok["process"])].reset_index(drop=True)


def devices_of(trial: dict[str, Any]) -> list[str]:
    """Name the devices of a trial as counters.csv does."""
    return ["host"] if trial["device_kind"] == "cpu" else [f"gpu{number}" for number in range(trial["devices"])]


def cross_check(campaign: Campaign, trial: dict[str, Any]) -> dict[str, float]:
    """Compare two ways to measure one thing: PCIe bytes received by GPM / by the counters, joules by the energy counter / by power.

    Each is a ratio of sums over all processes and devices; missing where either way is, or where too little was counted to tell.
    """
    own = campaign.counters[(campaign.counters["trial"] == trial["trial"]) & campaign.counters["device"].isin(devices_of(trial))]
    sums = Counter[str]()
    for _, rows in own.groupby(["process", "device"]):
        slow = rows[rows["kind"] == "slow"].sort_values("seconds")
        _add_energy(sums, rows, slow)
        _add_traffic(sums, rows, slow)
    ratios = {}
    if sums["power_joules"] > 0:
        ratios["energy_counter_ratio"] = sums["counter_joules"] / sums["power_joules"]
    if sums["counter_bytes"] > LEAST_BYTES:
        ratios["gpm_ratio"] = sums["gpm_bytes"] / sums["counter_bytes"]
    return ratios


def interpolate(rows: pd.DataFrame, column: str, moments: "pd.Series[float]") -> Values:
    """Return a cumulative column at some moments of the clock; nan outside of its readings."""
    known = rows[rows[column].notna()].sort_values("seconds")
    if known.empty:
        return np.full(len(moments), np.nan)
    values: Values = np.interp(moments, known["seconds"], known[column], left=np.nan, right=np.nan)
    return values


def moved_around(rows: pd.DataFrame, column: str, windows: pd.DataFrame, every: pd.DataFrame) -> Values:
    """Return by how much a cumulative column moved from the last reading before each window to the first after it.

    nan where one of them is missing, or where another of `every` window of the process lies between them in part.
    """
    known = rows[rows[column].notna()].sort_values("seconds")
    times, totals = known["seconds"].to_numpy(), known[column].to_numpy()
    before = np.searchsorted(times, windows["start"], side="right") - 1
    after = np.searchsorted(times, windows["stop"], side="left")
    found = np.full(len(windows), np.nan)
    for number, (first, last) in enumerate(zip(before, after, strict=True)):
        if first < 0 or last == len(times):
            continue
        between = (every["stop"] > times[first]) & (every["start"] < times[last])
        if between.sum() == 1:  # the window itself
            found[number] = totals[last] - totals[first]
    return found


def throttled(rows: pd.DataFrame, windows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the bits of `THROTTLES` that were set during each window; `rows` are one GPU's samples of the same process."""
    fast = _since_the_last(rows[rows["event_reasons"].notna()])
    reasons = fast["event_reasons"].to_numpy(dtype=np.int64) & sum(THROTTLES)
    found: NDArray[np.int64] = np.bitwise_or.reduce(np.where(_overlaps(fast, windows), reasons[:, None], 0), axis=0)
    return found


def _per_step(samples: Mapping[Any, pd.DataFrame], every: pd.DataFrame, windows: pd.DataFrame, devices: list[str],
              what: tuple[str, str]) -> tuple[Values, list[str]]:
    """Integrate a counter over the timed windows; returns units a step, nan where not measured, and why for each of those.

    `samples` are a trial's rows by process and device, `every` its windows, those of its warm-up too.
    """
    counter, link = what
    values = np.zeros(len(windows))
    reasons: dict[int, str] = {}  # by window
    for process, those in windows.groupby("process"):
        for device in devices:
            rows = samples[process, device]
            moved = np.full(len(those), np.nan)
            if link != "energy":
                outside = rows[rows["kind"] == EDGE] if link in READ_WITHIN else rows
                moved = moved_around(outside, counter, those, every[every["process"] == process])
            if link in READ_WITHIN:
                between = interpolate(rows, counter, those["stop"]) - interpolate(rows, counter, those["start"])
                moved = np.where(np.isnan(moved), between, moved)
            broken = _breaks(rows, those, link)
            each = np.where(broken == "", moved / those["steps"].to_numpy(), np.nan)
            values[those.index] += each
            for index, text in zip(those.index[np.isnan(each)], broken[np.isnan(each)], strict=True):
                reasons.setdefault(int(index), str(text) or f"no samples of {device} on both sides of it alone")
    return values, list(reasons.values())


def _unknown(own: pd.DataFrame, devices: list[str], known: set[str], what: tuple[str, str]) -> list[str]:
    """Say why a quantity is not measured at all; nothing where no device supports it, for that campaign.json says."""
    link, name = what
    missing = [device for device in devices if device not in known]
    rows = own[own["device"].isin(missing)]
    nowhere = len(missing) == len(devices)
    answered = rows[[counter for counter, _, _ in QUANTITIES.values()]].notna().any(axis=None)
    links = (link,) if nowhere and answered else (link, "gpu")  # a GPU that tells others and was lost once lacks this one anyway
    why = next(filter(None, (_why(text, links) for text in rows["broken"])), "")
    if nowhere and not why:
        return []
    return [f"{name} not measured: no samples of {', '.join(missing)}" + (f" ({why})" if why else "")]


def _why(broken: str, links: tuple[str, ...]) -> str:
    """Return what a row says against the counters of some links."""
    parts = [part.partition(": ") for part in broken.split("; ")]
    return next((text for what, _, text in parts if what in links), "")


def _breaks(rows: pd.DataFrame, windows: pd.DataFrame, link: str) -> NDArray[np.str_]:
    """Say for each window why its counter of `link` is broken; empty where it is not."""
    found = np.full(len(windows), "", dtype=object)
    for kind in rows.loc[rows["broken"] != "", "kind"].unique():
        those = _since_the_last(rows[rows["kind"] == kind])
        those = those[those["broken"] != ""]
        for text, during in zip(those["broken"], _overlaps(those, windows), strict=True):
            found[during] = _why(text, (link, "gpu")) or found[during]
    return found


def _since_the_last(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by time and add `since`: a row speaks for the time since the row before it."""
    rows = rows.sort_values("seconds")
    return rows.assign(since=rows["seconds"].shift(fill_value=-np.inf))


def _overlaps(rows: pd.DataFrame, windows: pd.DataFrame) -> NDArray[np.bool_]:
    """Say for each row (down) and each window (across) whether the row speaks for some of the window."""
    after = rows["seconds"].to_numpy()[:, None] >= windows["start"].to_numpy()
    before = rows["since"].to_numpy()[:, None] <= windows["stop"].to_numpy()
    overlap: NDArray[np.bool_] = after & before
    return overlap


def _note_throttling(found: Found, own: pd.DataFrame, windows: pd.DataFrame, devices: list[str]) -> None:
    if not own["event_reasons"].notna().any():
        return
    bits: list[int] = []
    for process, those in windows.groupby("process"):
        each = [throttled(own[(own["process"] == process) & (own["device"] == device)], those) for device in devices]
        bits += np.bitwise_or.reduce(each).tolist()
    count = sum(1 for reasons in bits if reasons)
    found.columns["throttled_windows"] = count
    if count:
        names = ", ".join(name for bit, name in THROTTLES.items() if any(reasons & bit for reasons in bits))
        found.remarks.append(f"{count} of {len(windows)} windows throttled: {names}")


def _note_coverage(found: Found, own: pd.DataFrame) -> None:
    """Say which share of the time 20 ms samples of the throughput cover, where there are no counters."""
    sampled = own[own["pcie_covered_seconds"].notna()]
    if not sampled.empty:
        each = sampled.groupby(["process", "device"]).agg({"pcie_covered_seconds": ["min", "max"], "seconds": ["min", "max"]})
        covered = (each["pcie_covered_seconds"]["max"] - each["pcie_covered_seconds"]["min"]).sum()
        share = covered / (each["seconds"]["max"] - each["seconds"]["min"]).sum()
        found.remarks.append(f"PCIe bytes from 20 ms samples of {100 * share:.0f} % of the time")


def _note_company(found: Found, own: pd.DataFrame, windows: pd.DataFrame, expected: int) -> None:
    """Say where more processes than the campaign's own were on a GPU; `own` is what the trial's devices told."""
    most = own.loc[own["seconds"].between(windows["start"].min(), windows["stop"].max()), "processes"].max()
    if most > expected:
        found.remarks.append(f"{most:.0f} processes were on one GPU")


def _disagreements(ratios: dict[str, float]) -> list[str]:
    words = {"gpm_ratio": "GPM counts {:.2f} times the PCIe bytes of the counters",
             "energy_counter_ratio": "the energy counter shows {:.2f} times the joules of the power sensor"}
    return [words[name].format(ratio) for name, ratio in ratios.items() if abs(ratio - 1) > DISAGREEMENT]


def _add_energy(sums: "Counter[str]", rows: pd.DataFrame, slow: pd.DataFrame) -> None:
    read = slow[slow["energy_counter_joules"].notna()]
    joules = interpolate(rows, "energy_joules", read["seconds"])
    read, joules = read[~np.isnan(joules)], joules[~np.isnan(joules)]
    if len(read) > 1 and read["seconds"].iloc[-1] - read["seconds"].iloc[0] >= LEAST_SECONDS:
        sums.update({"counter_joules": read["energy_counter_joules"].iloc[-1] - read["energy_counter_joules"].iloc[0],
                     "power_joules": joules[-1] - joules[0]})


def _add_traffic(sums: "Counter[str]", rows: pd.DataFrame, slow: pd.DataFrame) -> None:
    bytes_then = interpolate(rows, "pcie_rx_bytes", slow["seconds"])
    by_gpm = slow["gpm_pcie_rx_bytes_per_second"].to_numpy() * slow["seconds"].diff().to_numpy()
    by_counters = np.diff(bytes_then, prepend=np.nan)
    both = ~np.isnan(by_gpm) & ~np.isnan(by_counters)
    sums.update({"gpm_bytes": by_gpm[both].sum(), "counter_bytes": by_counters[both].sum()})
