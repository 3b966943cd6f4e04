"""What devices that divide the network send, predicted beside counted, and how long stages idle."""

import math

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, best_unit, number
from analysis.display.ranking import GROUP
from analysis.trials import model_parallel

COUNTED = "nvlink_bytes_per_step"


def table(trials: pd.DataFrame) -> pd.DataFrame:
    """List predicted and counted bytes of a step of verified rows on several devices.

    Empty where no strategy divides the network. NVLink's counters are of GPUs alone.
    """
    rows = trials[(trials["verified"] == "yes") & (trials["devices"] > 1)]
    if not rows["strategy"].isin(model_parallel.DIVIDING).any():
        return pd.DataFrame()
    found = rows[[*GROUP, "framework", "strategy"]].copy()
    settings = rows["settings"].fillna("")
    sent, idle = (pd.Series([of(row, said) for (_, row), said in
                             zip(rows.iterrows(), settings, strict=True)], rows.index, float)
                  for of in (model_parallel.sent_bytes, model_parallel.bubble))
    unit, scale = best_unit(sent, BYTE_UNITS)
    found[f"sent, predicted ({unit})"] = (sent / scale).map(number)
    found[f"sent, counted ({unit})"] = (rows[COUNTED] / scale).map(number)
    found["counted / predicted"] = (rows[COUNTED] / sent).map(
        lambda ratio: "" if math.isnan(ratio) else f"{ratio:.3f}")
    found["pipeline idle, predicted (%)"] = (100 * idle).map(number)
    kept = [column for column in found if column in GROUP or (found[column] != "").any()]
    return ranking.without_constants(found[kept], trials)


def remark(trials: pd.DataFrame) -> str:
    """Say why nothing is counted beside the predicted bytes, or ""."""
    several = trials[(trials["verified"] == "yes") & (trials["devices"] > 1)]
    if several[COUNTED].notna().any():
        return ""
    return "Not counted: there is no counter of what devices on a CPU, or without NVLink, send."
