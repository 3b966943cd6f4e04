"""What a trial's trace proves: the precision of its products, its copies and its idle time.

`kernels` holds one trial's rows of kernels.csv: none without a trace, or one with a reason.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign
from analysis.traces import kernels as names

COLUMNS = ("payload_h2d_bytes_per_step", "payload_d2h_bytes_per_step", "idle_share",
           "unclassified_share")

# To what a product may round its operands. Wider is right too: small products, such as those with a
# bias or in a loss, stay in fp32 in every framework's mixed precision.
ALLOWED = {
    "fp32": {"fp32", "fp64"},
    "tf32": {"tf32", "fp32", "fp64"},
    "bf16": {"bf16", "tf32", "fp32", "fp64"},
    "fp16": {"fp16", "tf32", "fp32", "fp64"},
    # What has no weights stays in floating point.
    "int8": {"int8", "fp32", "fp64"},
}
MIXED = ("bf16", "fp16")
# Share of the product time of known arithmetic that mixed precision must spend in the declared one.
MOST = 0.5
# What decides a row's arithmetic: a trace holds for all rows that are equal in these.
ALIKE = ("framework", "release", "network", "device_kind", "precision", "tuning")
# A report says if kernels without a known arithmetic take a larger share of the product time.
SILENT = 0.1


def columns(kernels: pd.DataFrame, step_seconds: float, ranks: int = 1) -> dict[str, float]:
    """Derive `COLUMNS` of trials.csv: bytes per mini-batch and shares; nothing without a trace.

    Only the first rank is traced; each copies as much as any other. Idle time is the untraced step
    less the trace's busy time, because tracing lengthens gaps (fcn5 on an H200: 29 % for 9.5 %).
    """
    activities = kernels[kernels["class"].isin(names.CLASSES)]
    if activities.empty:
        return {}
    copies = activities[activities["class"] == names.COPY].groupby("kernel")["bytes_per_step"].sum()
    launched = activities[~activities["class"].isin((names.COPY, names.MEMSET))]
    unknown = launched.loc[launched["class"] == names.UNCLASSIFIED, "seconds_per_step"].sum()
    busy = kernels.loc[kernels["class"] == names.BUSY, "seconds_per_step"].sum()
    return {
        "payload_h2d_bytes_per_step": ranks * copies.get("host_to_device", 0.0),
        "payload_d2h_bytes_per_step": ranks * copies.get("device_to_host", 0.0),
        "idle_share": max(0.0, 1 - busy / step_seconds),
        "unclassified_share":
            unknown / launched["seconds_per_step"].sum() if len(launched) else 0.0,
    }


def contradicted(campaign: Campaign) -> dict[str, list[str]]:
    """Return for each trial why its arithmetic is not the declared one; nothing without evidence.

    One traced process speaks for its trial. A trial without a trace is judged by traced ones that
    are `ALIKE`, since neither the batch nor the devices decide the arithmetic.
    """
    found: dict[str, list[str]] = {}
    of_alike: dict[tuple[str, ...], list[str]] = {}
    untraced = []
    for trial in campaign.trials:
        name, kernels = trial["trial"], campaign.rows("kernels", trial["trial"])
        found[name] = reasons_against(trial, kernels)
        if found[name]:
            said = [f"{reason} (in the trace of {name})" for reason in found[name]]
            of_alike.setdefault(_alike(trial), said)
        if not kernels["class"].isin(names.CLASSES).any():
            untraced.append(trial)
    return found | {trial["trial"]: of_alike.get(_alike(trial), []) for trial in untraced}


def _alike(trial: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(trial[key] for key in ALIKE)


def reasons_against(trial: Mapping[str, Any], kernels: pd.DataFrame) -> list[str]:
    """Return the product that contradicts the declared precision, with its share of product time.

    In bf16 and fp16 more than `MOST` of the known product time must be in the declared arithmetic.
    """
    declared = trial["precision"]
    products, total = _products(kernels)
    strays = products[~products["arithmetic"].isin({*ALLOWED[declared], ""})]
    if len(strays):
        return [_contradiction(declared, strays, total)]
    known = products[products["arithmetic"] != ""]
    right = known.loc[known["arithmetic"] == declared, "seconds_per_step"].sum()
    if declared in MIXED and len(known) and right < MOST * known["seconds_per_step"].sum():
        return [_contradiction(declared, known[known["arithmetic"] != declared], total)]
    return []


def _contradiction(declared: str, products: pd.DataFrame, total: float) -> str:
    return (f"declared {declared}, but {_share(products, total)} of the product time ran in "
            f"{' and '.join(products['arithmetic'].unique())}: {products['kernel'].iloc[0]}")


def remarks(trial: Mapping[str, Any], kernels: pd.DataFrame) -> list[str]:
    """Return what a reader must know of the audit: none was made, or what it could not see."""
    untraced = kernels.loc[kernels["class"] == names.NO_TRACE, "reason"]
    found = [f"no trace, so precision was not audited: {reason}" for reason in untraced]
    products, total = _products(kernels)
    silent = products[products["arithmetic"] == ""]
    if len(silent) and silent["seconds_per_step"].sum() > SILENT * total:
        found.append(f"{_share(silent, total)} of the product time in kernels whose names do not "
                     f"say their arithmetic, such as {silent['kernel'].iloc[0]}")
    if trial["precision"] == "tf32" and len(products) and "tf32" not in set(products["arithmetic"]):
        found.append("declared tf32, and no product is seen to have run in it")
    return found


def _products(kernels: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Return the matrix products and convolutions, longest first, and their total seconds."""
    products = kernels[kernels["class"].isin((names.PRODUCT, names.CONVOLUTION))]
    products = products.sort_values("seconds_per_step", ascending=False)
    return products, float(products["seconds_per_step"].sum())


def _share(part: pd.DataFrame, total: float) -> str:
    return f"{100 * part['seconds_per_step'].sum() / total:.3g} %" if total else "all"
