"""Compares two ways to measure PCIe bytes and energy, from the samples of counters.csv."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.reader import Campaign

Values = NDArray[np.float64]

# From here on two ways to measure one thing are reported to differ.
DISAGREEMENT = 0.1
# Between two readings of the energy counter, which moves in steps of some 0.1 s.
LEAST_SECONDS = 2.0
CROSS_CHECKED = ["seconds", "kind", "energy_joules", "energy_counter_joules", "pcie_rx_bytes",
                 "gpm_pcie_rx_bytes_per_second"]
# Less traffic between GPM's samples is noise of other programs.
LEAST_BYTES = 1e8


class Rows(dict[str, NDArray[Any]]):
    """Columns of a few rows as arrays: pandas takes a hundred times as long to choose some."""

    def where(self, chosen: NDArray[Any]) -> "Rows":
        """Return the rows that a mask or places choose."""
        return Rows({name: values[chosen] for name, values in self.items()})


def split(table: pd.DataFrame, keys: str | list[str], columns: list[str]) -> Mapping[Any, Rows]:
    """Return the rows of each value of `keys`, in order of the first column."""
    table = table.sort_values(columns[0], kind="stable")
    whole = Rows({name: table[name].to_numpy() for name in columns})
    groups = {key: whole.where(np.asarray(chosen))
              for key, chosen in table.groupby(keys).indices.items()}
    return defaultdict(lambda: whole.where(np.arange(0)), groups)


def ratios(campaign: Campaign, trial: dict[str, Any]) -> dict[str, float]:
    """Compare PCIe bytes received by GPM / by the counters, and joules by the counter / by power.

    Each is a ratio of sums over all processes and devices, missing where too little was counted.
    """
    own = campaign.rows("counters", trial["trial"])
    own = own[own["device"].isin(devices_of(trial))]
    sums = Counter[str]()
    for rows in split(own, ["process", "device"], CROSS_CHECKED).values():
        slow = rows.where(rows["kind"] == "slow")
        _add_energy(sums, rows, slow)
        _add_traffic(sums, rows, slow)
    found = {}
    if sums["power_joules"] > 0:
        found["energy_counter_ratio"] = sums["counter_joules"] / sums["power_joules"]
    if sums["counter_bytes"] > LEAST_BYTES:
        found["gpm_ratio"] = sums["gpm_bytes"] / sums["counter_bytes"]
    return found


def disagreements(ratios: dict[str, float]) -> list[str]:
    words = {"gpm_ratio": "GPM counts {:.2f} times the PCIe bytes of the counters",
             "energy_counter_ratio":
                 "the energy counter shows {:.2f} times the joules of the power sensor"}
    return [words[name].format(ratio) for name, ratio in ratios.items()
            if abs(ratio - 1) > DISAGREEMENT]


def _add_energy(sums: "Counter[str]", rows: Rows, slow: Rows) -> None:
    read = slow.where(~np.isnan(slow["energy_counter_joules"]))
    joules = interpolate(rows, "energy_joules", read["seconds"])
    read, joules = read.where(~np.isnan(joules)), joules[~np.isnan(joules)]
    if len(joules) > 1 and read["seconds"][-1] - read["seconds"][0] >= LEAST_SECONDS:
        counted = read["energy_counter_joules"]
        sums.update({"counter_joules": counted[-1] - counted[0],
                     "power_joules": joules[-1] - joules[0]})


def _add_traffic(sums: "Counter[str]", rows: Rows, slow: Rows) -> None:
    bytes_then = interpolate(rows, "pcie_rx_bytes", slow["seconds"])
    passed = np.diff(slow["seconds"], prepend=np.nan)
    by_gpm = slow["gpm_pcie_rx_bytes_per_second"] * passed
    by_counters = np.diff(bytes_then, prepend=np.nan)
    both = ~np.isnan(by_gpm) & ~np.isnan(by_counters)
    sums.update({"gpm_bytes": by_gpm[both].sum(), "counter_bytes": by_counters[both].sum()})


def devices_of(trial: dict[str, Any]) -> list[str]:
    """Name the devices of a trial as counters.csv does."""
    if trial["device_kind"] == "cpu":
        return ["host"]
    return [f"gpu{number}" for number in range(trial["devices"])]


def interpolate(rows: Rows, column: str, moments: Values) -> Values:
    """Return a cumulative column at some moments of the clock; nan outside its readings."""
    seconds, totals = readings(rows, column)
    if not len(seconds):
        return np.full(len(moments), np.nan)
    return np.asarray(np.interp(moments, seconds, totals, left=np.nan, right=np.nan))


def readings(rows: Rows, column: str) -> tuple[Values, Values]:
    """Return the seconds and values of a column where it was read."""
    read = ~np.isnan(rows[column])
    return rows["seconds"][read], rows[column][read]
