"""How near a row comes to what its machine could do, and what the rest was lost to.

The limit is a roofline (Williams, Waterman, Patterson, CACM 52, 2009): each stage of the network needs its operations at the
matrix-product peak or its bytes at the memory's bandwidth, whichever takes longer, both measured in the same campaign. What a step
takes beyond goes to the classes of its trace. docs/method/traces.md says what the limit leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import networks
from analysis.display import ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number
from analysis.display.palette import KERNELS
from analysis.display.ranking import GROUP
from analysis.proof import plausibility
from analysis.records.reader import Campaign
from analysis.traces.kernels import (
    COLLECTIVE,
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    IDLE,
    LAYOUT,
    MEMSET,
    OPTIMISER,
    PRODUCT,
    REDUCTION,
    UNCLASSIFIED,
)
from analysis.trials import breakdown
from analysis.trials.breakdown import RESIDUAL, NotExplained
from networks import work

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
PRODUCTS = ("dense", "conv2d", "lstm")
LOST = {  # what a step loses to: classes of its trace, and the stages of the limit that are taken off them
    "products": (PRODUCT, CONVOLUTION), "element-wise and update": (ELEMENTWISE, OPTIMISER), "reductions": (REDUCTION,),
    "layout": (LAYOUT,), "copies and collectives": (COPY, MEMSET, COLLECTIVE), "idle": (IDLE,), "other": (UNCLASSIFIED, RESIDUAL),
}
COMPUTE, MEMORY, UNKNOWN = "limit: computing", "limit: memory", "lost, not traced"
SHADES = {COMPUTE: "#3d4752", MEMORY: "#8b949e", UNKNOWN: "#c4ccd4",
          **{name: KERNELS[classes[0]] for name, classes in LOST.items()}, "other": "#f6f8fa"}


@dataclass(frozen=True)
class Limit:
    """The least seconds of a step: of stages that computing bounds, of those that memory bounds, and of the products of both."""

    compute_seconds: float
    memory_seconds: float
    product_seconds: float

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.memory_seconds


def of_trial(trial: Mapping[Any, Any], meta: Mapping[str, Any]) -> Limit | None:
    """Return the limit of a trial's step on one device; None where the campaign measured no peak or its network is not known."""
    flops, bandwidth = plausibility.peak_of(trial, meta), bandwidth_of(trial, meta)
    if not flops or not bandwidth:
        return None
    try:
        stages = work.stages(networks.get(trial["network"]), int(trial["batch"]), ELEMENT_BYTES[trial["precision"]])
    except networks.UnknownNetwork:
        return None
    times = [(stage, stage.flops / flops, stage.bytes / bandwidth) for stage in stages]
    return Limit(sum(compute for _, compute, memory in times if compute >= memory),
                 sum(memory for _, compute, memory in times if memory > compute),
                 sum(max(compute, memory) for stage, compute, memory in times if stage.op in PRODUCTS and stage.phase != "update"))


def bandwidth_of(trial: Mapping[Any, Any], meta: Mapping[str, Any]) -> float | None:
    """The most bytes a second that any framework moved on this kind of device and threads; None where none was asked."""
    reached = [float(peak["bytes_per_second"]) for peak in meta.get("peaks") or () if peak.get("bytes_per_second")
               and (peak["device_kind"], peak["threads"]) == (trial["device_kind"], trial["threads"])]
    return max(reached, default=None)


def by_trial(campaign: Campaign, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the verified rows of `rows` (trials.csv) that have a limit, with its seconds and a column for each of `LOST`.

    `COMPUTE`, `MEMORY` and what was lost add up to `step_seconds`; a row without a trace has all its loss in `UNKNOWN`.
    """
    found: list[dict[Any, Any]] = []
    for row in rows[rows["verified"] == "yes"].to_dict("records"):
        limit = of_trial(row, campaign.meta)
        if limit:
            lost = _lost(campaign, row, limit)
            found.append({**row, COMPUTE: limit.compute_seconds, MEMORY: limit.memory_seconds, **lost})
    return pd.DataFrame(found, columns=[*rows.columns, COMPUTE, MEMORY, *LOST, UNKNOWN])


def table(limits: pd.DataFrame) -> pd.DataFrame:
    """Write the limit beside the time of each row, and in percent of its step what the rest was lost to."""
    unit, scale = best_unit(limits["step_seconds"], TIME_UNITS)
    lost = [name for name in (*LOST, UNKNOWN) if limits[name].fillna(0.0).any()]
    rows = []
    for name, (_, row) in zip(ranking.contestants(limits), limits.iterrows(), strict=True):
        limit = row[COMPUTE] + row[MEMORY]
        rows.append({
            **row[GROUP], "framework": name, f"time ({unit})": number(row["step_seconds"] / scale),
            f"limit ({unit})": number(limit / scale), "limit / time": _percent(limit / row["step_seconds"]),
            "of the limit, memory": _percent(row[MEMORY] / limit), "share of the peak": _percent(row["mfu"]),
            **{part if part == UNKNOWN else f"lost: {part}": _percent(row[part] / row["step_seconds"]) for part in lost},
        })
    return ranking.without_constants(pd.DataFrame(rows), limits)


def figure(limits: pd.DataFrame) -> Figure:
    """Draw a bar a row: its limit, and what it lost to, up to its step, which is 100 %."""
    limits = limits.reset_index(drop=True)
    labels = [f"{name}, {ranking.setting(row, limits)}"
              for name, (_, row) in zip(ranking.contestants(limits), limits.iterrows(), strict=True)]
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(style.PANEL[0] * style.PANELS_ABREAST, 1.8 + 0.34 * len(limits)), layout="constrained")
        axes = figure.subplots()
        left = np.zeros(len(limits))
        overdrawn = limits[[*LOST]].clip(upper=0).sum(axis=1).to_numpy()  # below its limit: taken off the limit's own bar
        for name in (COMPUTE, MEMORY, *LOST, UNKNOWN):
            seconds = limits[name].fillna(0.0).clip(lower=0).to_numpy(float)
            if name in (COMPUTE, MEMORY):
                cut = np.minimum(seconds, -overdrawn)
                seconds, overdrawn = seconds - cut, overdrawn + cut
            share = 100 * seconds / limits["step_seconds"].to_numpy(float)
            if share.any():
                axes.barh(range(len(limits)), share, left=left, height=0.7, color=SHADES[name], label=name,
                          edgecolor=style.GRID if name in ("other", "idle") else "none", linewidth=0.6)
            left += share
        axes.set_yticks(range(len(limits)), labels)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.grid(axis="x")
        axes.set_xlabel("share of the time of a mini-batch (%)")
        figure.suptitle("How near the machine's limit, and what the rest is lost to", x=0.01, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=4)
        return figure


def _lost(campaign: Campaign, row: Mapping[Any, Any], limit: Limit) -> dict[str, float]:
    """Seconds beyond the limit by what they went to; all in `UNKNOWN` where the step cannot be taken apart."""
    try:
        parts = breakdown.of_trial(campaign, row["trial"]).parts
    except NotExplained:
        return {UNKNOWN: row["step_seconds"] - limit.seconds}
    lost = {name: float(parts.reindex(list(classes)).sum()) for name, classes in LOST.items()}
    lost["products"] -= limit.product_seconds
    lost["element-wise and update"] -= limit.seconds - limit.product_seconds
    return lost


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.3g} %"
