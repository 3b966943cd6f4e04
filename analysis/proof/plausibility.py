"""Gates that no true measurement can miss: a row that is faster than its machine is refused, whatever proved its network.

A row's FLOP/s are held against the matrix-product peak that the campaign measured, n devices against n times one, and bytes
against the PCIe link. The slow end of a row's interval is what counts, and each bound has a stated margin. Reads the derived rows
and campaign.json; measures nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

import networks
from networks import work

PEAK_MARGIN = 1.1  # the peak is itself measured, and boost clocks differ between a product of seconds and a step of milliseconds
SCALING_MARGIN = 1.05  # devices of one kind differ in clock by a few per cent
CACHES_MARGIN = 2.0  # of strong scaling on CPUs: a nearer cache is read about that much faster than the next one
LINK_MARGIN = 1.05
WIDER = {"tf32": "fp32", "bf16": "fp32", "fp16": "fp32"}  # what a framework may compute in instead, without telling less
# GB/s a lane and direction: transfers a second x line code / 8 (PCI Express Base Specification; 6 in FLIT mode, 242 of 256 bytes)
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8,
                         6: 64e9 * 242 / 256 / 8}
SAME = ["framework", "release", "network", "device_kind", "threads", "precision", "tuning", "data"]


def apply(rows: pd.DataFrame, meta: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of trials.csv with `mfu` filled in and every implausible one refused, its reason first.

    `mfu` is a device's share of the peak in its row's precision: flops_per_step / devices / step_seconds / peak.
    """
    rows = rows.copy()
    measured = rows[rows["status"] == "ok"]
    for index, row in zip(measured.index, measured.to_dict("records"), strict=True):
        peak = peak_of(row, meta)
        if peak:
            rows.loc[index, "mfu"] = row["flops_per_step"] / row["devices"] / row["step_seconds"] / peak
        faults = [*_beyond_peak(row, meta), *_beyond_devices(row, rows, meta), *_beyond_link(row, meta)]
        if faults:
            rows.loc[index, "verified"] = "no"
            rows.loc[index, "reason"] = "; ".join([*faults, *filter(None, [row["reason"]])])
    return rows


def peak_of(row: Mapping[Any, Any], meta: Mapping[str, Any], precision: str = "") -> float | None:
    """The most FLOP/s that any framework reached on this row's kind of device, threads and precision; None where none was tried."""
    wanted = (row["device_kind"], row["threads"], precision or row["precision"])
    reached = [float(peak["flops"]) for peak in meta.get("peaks") or ()
               if peak["flops"] and (peak["device_kind"], peak["threads"], peak["precision"]) == wanted]
    return max(reached, default=None)


def least_flops(network: str, batch: int) -> float | None:
    """The fewest operations that a known algorithm needs for one training step; None for a network that is not known here."""
    try:
        layers = networks.get(network)
    except networks.UnknownNetwork:
        return None
    saving = {layer.name: _saving(layer.attributes) if layer.op == "conv2d" else 1.0 for layer in layers.layers}
    return float(sum(2 * product.multiply_adds / saving[product.layer] for product in work.matrix_products(layers, batch)))


def _saving(convolution: Mapping[Any, Any]) -> float:
    """How many times fewer multiplications than the direct count a convolution may need.

    Winograd's F(2x2, 3x3) needs 2.25 times fewer, F(4x4, 3x3) 4 (Lavin and Gray, arXiv 1509.09308), F(6x6, 3x3) 5.1. In Fourier
    space one complex product, at least three real ones, at each of the half of frequencies that a real image has stands for k x k:
    k^2 / 1.5 fewer, transforms not counted. That is 6 for 3x3 and so bounds them all. A stride s leaves s^2 convolutions of kernel
    k / s. 1x1 saves nothing.
    """
    kernel = math.ceil(convolution["kernel"] / convolution["stride"])
    return float(max(1.0, kernel**2 / 1.5))


def _beyond_peak(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> list[str]:
    precisions = [row["precision"], *filter(None, [WIDER.get(row["precision"])])]
    peak = max((peak_of(row, meta, precision) or 0.0 for precision in precisions), default=0.0)
    least = least_flops(row["network"], row["batch"]) or row["flops_per_step"] / row["devices"]
    reached = least / _slow_end(row)
    if not peak_of(row, meta) or reached <= PEAK_MARGIN * peak:
        return []
    return [f"implausible: at least {reached:.3g} FLOP/s, and this machine's {row['precision']} peak is {peak:.3g}: "
            "work or a synchronisation is missing"]


def _beyond_devices(row: Mapping[Any, Any], rows: pd.DataFrame, meta: Mapping[str, Any]) -> list[str]:
    """n devices are at most n times one. Each has its own mini-batch, so a step with the same batch on each cannot be shorter than
    on one (weak scaling); with the same batch in all, not shorter than its n-th part (strong). Needs both intervals.

    Devices of a CPU that share cores are as many as there are cores for. They bring a cache each, and a part of a batch may fit
    where the whole did not: there strong scaling has the wider margin.
    """
    devices = row["devices"]
    if devices == 1:
        return []
    alike = rows[(rows["status"] == "ok") & (rows["devices"] == 1)]
    for column in SAME:
        alike = alike[alike[column] == row[column]]
    strong = _at_work(row, meta) * (CACHES_MARGIN if row["device_kind"] == "cpu" else SCALING_MARGIN)
    most = {"batch": (1, devices * SCALING_MARGIN, ""), "global_batch": (devices, strong, " with the whole batch")}
    faults = []
    for column, (parts, times, words) in most.items():
        shortest = alike.loc[alike[column] == row[column], "step_seconds_low"].min()  # nan where there is none, or no interval
        if shortest * devices / parts > times * row["step_seconds_high"]:
            faults.append(f"implausible: a step on {devices} devices takes at most {row['step_seconds_high']:.3g} s, on one "
                          f"at least {shortest:.3g} s{words}: more than {times:.3g} times as fast")
    return faults


def _at_work(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> float:
    """How many of a row's devices compute at a time: of a CPU, as many as have cores of their own."""
    cores = (meta["machine"].get("cpu") or {}).get("allowed")
    if row["device_kind"] != "cpu" or not cores:
        return float(row["devices"])
    return float(min(row["devices"], max(1.0, cores / row["threads"])))


def _beyond_link(row: Mapping[Any, Any], meta: Mapping[str, Any]) -> list[str]:
    links = [LANE_BYTES_PER_SECOND[generation] * width for gpu in meta["machine"].get("gpus") or ()
             if (generation := _generation(gpu)) in LANE_BYTES_PER_SECOND and (width := gpu.get("pcie_width"))]
    if not links:
        return []
    most = max(links) * row["devices"]
    faults = []
    for column, direction in (("pcie_rx_bytes_per_step", "received"), ("pcie_tx_bytes_per_step", "sent")):
        if pd.notna(row[column]) and row[column] / _slow_end(row) > LINK_MARGIN * most:
            faults.append(f"implausible: {row[column] / _slow_end(row):.3g} bytes/s {direction} over PCIe, whose "
                          f"link carries {most:.3g}")
    return faults


def _generation(gpu: Mapping[Any, Any]) -> Any:
    """The generation that the link reaches under load: an idle one steps down to save power."""
    return gpu.get("pcie_generation_max") or gpu.get("pcie_generation")


def _slow_end(row: Mapping[Any, Any]) -> float:
    """The longest step that the interval allows, or the estimate where there is no interval."""
    return float(row["step_seconds"] if pd.isna(row["step_seconds_high"]) else row["step_seconds_high"])
