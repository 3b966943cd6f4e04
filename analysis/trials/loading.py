"""Training from image files: whether the loader or the step is the bottleneck, from loading.csv.

Training from files, the loader alone and the step alone (on batches that lie on the device) were
timed in turn in each process. Ratios are those of a process's medians; the row has their median.
"""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign

# Column of trials.csv: the part of loading.csv.
PARTS = {"from_files_seconds": "files", "loader_seconds": "loader", "step_alone_seconds": "step"}
COLUMNS = (*PARTS, "bottleneck", "pixel_error")
# Training from files may take so many times as long as the step alone and still be bound by it.
SLACK = 1.05
COMPUTE, LOADER, LOST = "compute-bound", "loader-bound", "overlap lost"


def columns(campaign: Campaign, trial: str) -> dict[str, Any]:
    """Return `COLUMNS` of a trial; nan and "" where a part was not timed."""
    medians = of_processes(campaign, trial)
    found = {column: medians[part].median() for column, part in PARTS.items()}
    whole = (medians["files"] / medians["step"]).median()
    loader = (medians["loader"] / medians["step"]).median()
    return {**found, "bottleneck": verdict(whole, loader),
            "pixel_error": campaign.ok_rows("processes", trial)["pixel_error"].max()}


def verdict(whole: float, loader: float) -> str:
    """Name the bottleneck from the times of training and of the loader over the step's alone.

    Overlap is lost where training takes longer although the loader alone keeps up with the step:
    both wait for one another, or compete for the same cores.
    """
    if math.isnan(whole) or math.isnan(loader):
        return ""
    if whole <= SLACK:
        return COMPUTE
    return LOADER if loader >= 1 else LOST


def of_processes(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the median seconds a step of each part, a row an ok process and a column a part."""
    rows = campaign.ok_rows("loading", trial)
    rows = rows[rows["window"] >= 0]
    rows = rows.assign(step_seconds=rows["seconds"] / rows["steps"])
    table = rows.pivot_table(index="process", columns="variant", values="step_seconds",
                             aggfunc="median")
    return table.reindex(columns=list(PARTS.values()))


def remarks(campaign: Campaign, trial: str) -> Iterator[str]:
    """Say which parts could not be timed, and why."""
    rows = campaign.rows("loading", trial)
    missed = rows[rows["reason"] != ""]
    for (part, reason), _ in missed.groupby(["variant", "reason"]):
        yield f"part {part} of training from files not timed: {reason}"


