"""What devices that divide the network send, predicted beside counted, and how long stages idle."""

import math

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, best_unit, number
from analysis.display.ranking import GROUP
from analysis.strategies import dividing
from analysis.strategies import table as strategies

COUNTED = "nvlink_bytes_per_step"
IDLE = "pipeline idle, measured (%)"


def table(trials: pd.DataFrame) -> pd.DataFrame:
    """List predicted and counted bytes of a step of verified rows on several devices.

    Empty where no strategy divides the network. NVLink's counters are of GPUs alone.
    """
    rows = trials[(trials["verified"] == "yes") & (trials["devices"] > 1)]
    if not any(strategies.of(strategy).divides for strategy in rows["strategy"]):
        return pd.DataFrame()
    records = rows.to_dict("records")
    sent = [strategies.step_bytes(row, row["settings"]) for row in records]
    counted = [float(row[COUNTED]) for row in records]
    unit, scale = best_unit(pd.Series(sent), BYTE_UNITS)
    found = rows[[*GROUP, "framework", "strategy"]].copy()
    found[f"sent, predicted ({unit})"] = [number(value / scale) for value in sent]
    found[f"sent, counted ({unit})"] = [number(value / scale) for value in counted]
    found["counted / predicted"] = [
        "" if math.isnan(of / to) else f"{of / to:.3f}"
        for of, to in zip(counted, sent, strict=True)]
    found["pipeline idle, predicted (%)"] = [
        number(100 * dividing.bubble(row, row["settings"])) for row in records]
    found[IDLE] = [_idle(row["stage_idle_shares"]) for row in records]
    kept = [column for column in found if column in GROUP or (found[column] != "").any()]
    return ranking.without_constants(found[kept], trials)


def remark(trials: pd.DataFrame) -> str:
    """Say why nothing is counted beside the predicted bytes, and what is measured of a pipeline."""
    several = trials[(trials["verified"] == "yes") & (trials["devices"] > 1)]
    said = [] if several[COUNTED].notna().any() else [
        "Not counted: there is no counter of what devices on a CPU, or without NVLink, send."]
    if several["stage_idle_shares"].notna().any():
        said.append("Measured: the share of a step's pipeline in which a stage neither runs a "
                    "micro-batch nor its loss, the mean of all stages, then each. The prediction "
                    "is that of equal stages that send in no time.")
    return " ".join(said)


def _idle(shares: object) -> str:
    """Write the mean of the shares of all ranks, then each rank's, in per cent."""
    if not isinstance(shares, str):
        return ""
    each = [100 * float(share) for share in shares.split()]
    return f"{number(sum(each) / len(each))} ({', '.join(map(number, each))})"
