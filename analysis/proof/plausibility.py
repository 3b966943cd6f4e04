"""Refuses rows that are faster than their machine, whatever proved their network.

FLOP/s are compared with the matrix-product peak that the campaign measured, n devices with n times
one, and bytes with the PCIe link. The slow end of a row's interval counts. Each bound has a margin.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

import networks
from networks import work

# The peak is measured too, and boost clocks differ between a long product and a short step.
PEAK_MARGIN = 1.1
# Devices of one kind differ in clock by a few per cent.
SCALING_MARGIN = 1.05
# Of strong scaling on CPUs: a nearer cache is about that much faster than the next one.
CACHES_MARGIN = 2.0
LINK_MARGIN = 1.05
# A wider precision in which a framework may compute instead.
WIDER = {"tf32": "fp32", "bf16": "fp32", "fp16": "fp32"}
# Bytes/s a lane and direction: transfers a second x line code / 8 (PCI Express Base Specification;
# generation 6 in FLIT mode, 242 of 256 bytes).
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8,
                         5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8}
SAME = ["framework", "release", "network", "device_kind", "threads", "precision", "tuning", "data"]


def apply(rows: pd.DataFrame, meta: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of trials.csv with `mfu` filled in and implausible ones refused.

    `mfu` is a device's share of the peak in its precision: flops_per_step / devices / step_seconds
    / peak.
    """
    rows = rows.copy()
    measured = rows[rows["status"] == "ok"]
    for index, row in zip(measured.index, measured.to_dict("records"), strict=True):
        peak, share = peak_of(row, meta), 0.0
        if peak:
            share = row["flops_per_step"] / row["devices"] / row["step_seconds"] / peak
            rows.loc[index, "mfu"] = share
        faults = [*_beyond_peak(row, meta), *_beyond_devices(row, rows, meta),
                  *_beyond_link(row, meta)]
        if faults:
            rows.loc[index, "verified"] = "no"
            rows.loc[index, "reason"] = "; ".join([*faults, *filter(None, [row["reason"]])])
        elif share > 1:
            remark = _above_peak(row, share)
            rows.loc[index, "reason"] = "; ".join(filter(None, [row["reason"], remark]))
    return rows


def _above_peak(row: Mapping[Any, Any], share: float) -> str:
    """Say why a row that is not refused exceeds its precision's peak."""
    counted = row["flops_per_step"] / row["devices"]
    least = least_flops(row["network"], row["batch"], row.get("mode", "")) or counted
    if least < counted:
        return ("above the peak: operations are counted for direct convolutions, while FFT and "
                "Winograd need fewer")
    if share * row["step_seconds"] / _slow_end(row) > PEAK_MARGIN:
        return f"above the {row['precision']} peak: {WIDER[row['precision']]} reaches more here"
    return ("above the measured peak, but its interval reaches the peak's margin of "
            f"{100 * (PEAK_MARGIN - 1):.0f} %")


def peak_of(row: Mapping[Any, Any], meta: Mapping[str, Any], precision: str = "") -> float | None:
    """Return the most FLOP/s that any framework reached on this device, threads and precision."""
    keys = ("device_kind", "threads", "precision")
    wanted = [row["device_kind"], row["threads"], precision or row["precision"]]
    return max((float(peak["flops"]) for peak in meta.get("peaks") or ()
                if peak["flops"] and [peak[key] for key in keys] == wanted), default=None)


def least_flops(network: str, batch: int, mode: str = "") -> float | None:
    """Return the fewest operations of a training step, or of a call, by known algorithms.

    None if the network is unknown.
    """
    layers = networks.known(network)
    if not layers:
        return None
    saving = {layer.name: _saving(layer.attributes) if layer.op == "conv2d" else 1.0
              for layer in layers.layers}
    return float(sum(2 * product.multiply_adds / saving[product.layer]
                     for product in work.matrix_products(layers, batch)
                     if mode != "inference" or product.phase == "forward"))


def _saving(convolution: Mapping[Any, Any]) -> float:
    """Return how many times fewer multiplications than the direct count a convolution may need.

    Winograd's F(2x2, 3x3) needs 2.25 times fewer, F(4x4, 3x3) 4 (Lavin and Gray, arXiv 1509.09308),
    F(6x6, 3x3) 5.1. In Fourier space one complex product (three real ones) at half of the
    frequencies stands for k x k: k^2 / 1.5 fewer without transforms. That is 6 for 3x3 and bounds
    them all. A stride s leaves s^2 convolutions of kernel k / s. 1x1 saves nothing.
    """
    kernel = math.ceil(convolution["kernel"] / convolution["stride"])
    return float(max(1.0, kernel**2 / 1.5))


def _beyond_peak(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> list[str]:
    own = peak_of(row, meta)
    if not own:
        return []
    wider = WIDER.get(row["precision"])
    peak = max(own, (peak_of(row, meta, wider) or 0.0) if wider else 0.0)
    least = (least_flops(row["network"], row["batch"], row.get("mode", ""))
             or row["flops_per_step"] / row["devices"])
    reached = least / _slow_end(row)
    if reached <= PEAK_MARGIN * peak:
        return []
    return [f"implausible: at least {reached:.3g} FLOP/s, and this machine's {row['precision']} "
            f"peak is {peak:.3g}: work or a synchronisation is missing"]


def _beyond_devices(row: Mapping[Any, Any], rows: pd.DataFrame,
                    meta: Mapping[str, Any]) -> list[str]:
    """Compare n devices with n times one; needs both intervals.

    In weak scaling each device has the batch of one, so a step cannot be shorter than on one. In
    strong scaling each has an n-th of it, so a step cannot be shorter than an n-th of the time. On
    a CPU strong scaling has a wider margin, because a part of a batch may fit into a cache.
    """
    devices = row["devices"]
    if devices == 1:
        return []
    alike = rows[(rows["status"] == "ok") & (rows["devices"] == 1)]
    alike = alike[(alike[SAME] == pd.Series(row)[SAME]).all(axis=1)]
    margin = CACHES_MARGIN if row["device_kind"] == "cpu" else SCALING_MARGIN
    most = {"batch": (1, devices * SCALING_MARGIN, ""),
            "global_batch": (devices, _computing(row, meta) * margin, " with the whole batch")}
    faults = []
    for column, (parts, times, words) in most.items():
        # nan where there is no such row or no interval.
        shortest = alike.loc[alike[column] == row[column], "step_seconds_low"].min()
        if shortest * devices / parts > times * row["step_seconds_high"]:
            faults.append(f"implausible: a step on {devices} devices takes at most "
                          f"{row['step_seconds_high']:.3g} s, on one at least {shortest:.3g} s"
                          f"{words}: more than {times:.3g} times as fast")
    return faults


def _computing(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> float:
    """Return how many of a row's devices compute at once; devices of a CPU may share cores."""
    cores = (meta["machine"].get("cpu") or {}).get("allowed")
    if row["device_kind"] != "cpu" or not cores:
        return float(row["devices"])
    nodes = row.get("nodes", 1)
    return float(min(row["devices"], nodes * max(1.0, cores / row["threads"])))


def _beyond_link(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> list[str]:
    # The maximum of the generation, because an idle link steps down to save power.
    lanes = [(gpu.get("pcie_generation_max") or gpu.get("pcie_generation"), gpu.get("pcie_width"))
             for gpu in meta["machine"].get("gpus") or ()]
    most = row["devices"] * max((LANE_BYTES_PER_SECOND.get(generation, 0.0) * (width or 0)
                                 for generation, width in lanes), default=0.0)
    if not most:
        return []
    faults = []
    for column, direction in (("pcie_rx_bytes_per_step", "received"),
                              ("pcie_tx_bytes_per_step", "sent")):
        if pd.isna(row[column]):
            continue
        rate = row[column] / _slow_end(row)
        if rate > LINK_MARGIN * most:
            faults.append(f"implausible: {rate:.3g} bytes/s {direction} over PCIe, whose "
                          f"link carries {most:.3g}")
    return faults


def _slow_end(row: Mapping[Any, Any]) -> float:
    """Return the longest step in the interval, or the estimate without an interval."""
    longest = row["step_seconds_high"]
    return float(row["step_seconds"] if pd.isna(longest) else longest)
