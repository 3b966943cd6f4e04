"""What a trial's trace proves: that its products ran in the declared precision, what it copied, and how long the GPU idled.

`kernels` is always the rows of kernels.csv of one trial; a trial without a trace has none, or one row with the reason.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.traces.kernels import (
    BUSY,
    CLASSES,
    CONVOLUTION,
    COPY,
    MEMSET,
    NO_TRACE,
    PRODUCT,
    UNCLASSIFIED,
)

COLUMNS = ("payload_h2d_bytes_per_step", "payload_d2h_bytes_per_step", "idle_share", "unclassified_share")

# What a product of a trial may round its operands to. Wider is right too: small products, such as those with a bias or in a loss,
# stay in fp32 in every framework's mixed precision.
ALLOWED = {
    "fp32": {"fp32", "fp64"},
    "tf32": {"tf32", "fp32", "fp64"},
    "bf16": {"bf16", "tf32", "fp32", "fp64"},
    "fp16": {"fp16", "tf32", "fp32", "fp64"},
}
MIXED = ("bf16", "fp16")
MOST = 0.5  # of the product time whose arithmetic is known, that mixed precision must spend in the declared one
SILENT = 0.1  # of the product time in kernels whose names do not say their arithmetic, from which a reader is told


def columns(kernels: pd.DataFrame, step_seconds: float, ranks: int = 1) -> dict[str, float]:
    """Derive `COLUMNS` of trials.csv: payload in bytes per mini-batch, and shares from 0 to 1; nothing without a trace.

    Of all ranks the first was traced, and each copies as much as any other.
    The GPU idles for what its busy time (from the trace) leaves of a step as it was timed (without one): within a trace the host
    also writes records, so its own gaps are too long (fcn5 on an H200: 29 % for 9.5 %).
    """
    activities = kernels[kernels["class"].isin(CLASSES)]
    if activities.empty:
        return {}
    copies = activities[activities["class"] == COPY].groupby("kernel")["bytes_per_step"].sum()
    launched = activities[~activities["class"].isin((COPY, MEMSET))]
    unclassified = launched.loc[launched["class"] == UNCLASSIFIED, "seconds_per_step"].sum()
    busy = kernels.loc[kernels["class"] == BUSY, "seconds_per_step"].sum()
    return {
        "payload_h2d_bytes_per_step": ranks * copies.get("host_to_device", 0.0),
        "payload_d2h_bytes_per_step": ranks * copies.get("device_to_host", 0.0),
        "idle_share": max(0.0, 1 - busy / step_seconds),
        "unclassified_share": unclassified / launched["seconds_per_step"].sum() if len(launched) else 0.0,
    }


def reasons_against(trial: Mapping[str, Any], kernels: pd.DataFrame) -> list[str]:
    """Audit the declared precision: name the product that contradicts it and the share of all product time that did.

    In bf16 and fp16 more than `MOST` of the known product time must be in the declared arithmetic. [] without a trace.
    """
    declared = trial["precision"]
    products, total = _products(kernels)
    strays = products[~products["arithmetic"].isin({*ALLOWED[declared], ""})]
    if len(strays):
        return [f"declared {declared}, but {_share(strays, total)} of the product time ran in "
                f"{' and '.join(strays['arithmetic'].unique())}: {strays['kernel'].iloc[0]}"]
    known = products[products["arithmetic"] != ""]
    right = known.loc[known["arithmetic"] == declared, "seconds_per_step"].sum()
    if declared in MIXED and len(known) and right < MOST * known["seconds_per_step"].sum():
        wide = known[known["arithmetic"] != declared]
        return [f"declared {declared}, but {_share(wide, total)} of the product time ran in "
                f"{' and '.join(wide['arithmetic'].unique())}: {wide['kernel'].iloc[0]}"]
    return []


def remarks(trial: Mapping[str, Any], kernels: pd.DataFrame) -> list[str]:
    """Say what a reader must know of the audit: that there was none, what it could not see, TF32 that was allowed and not used."""
    found = [f"no trace, so precision was not audited: {reason}" for reason in kernels.loc[kernels["class"] == NO_TRACE, "reason"]]
    products, total = _products(kernels)
    silent = products[products["arithmetic"] == ""]
    if len(silent) and silent["seconds_per_step"].sum() > SILENT * total:
        found.append(f"{_share(silent, total)} of the product time in kernels whose names do not say their arithmetic, "
                     f"such as {silent['kernel'].iloc[0]}")
    if trial["precision"] == "tf32" and len(products) and "tf32" not in set(products["arithmetic"]):
        found.append("declared tf32, and no product is seen to have run in it")
    return found


def _products(kernels: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """The matrix products and convolutions, longest first, and their seconds in all."""
    products = kernels[kernels["class"].isin((PRODUCT, CONVOLUTION))].sort_values("seconds_per_step", ascending=False)
    return products, float(products["seconds_per_step"].sum())


def _share(part: pd.DataFrame, total: float) -> str:
    return f"{100 * part['seconds_per_step'].sum() / total:.3g} %" if total else "all"
