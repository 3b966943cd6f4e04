"""How near a row comes to what its machine could do, and what the rest was lost to.

The limit is a roofline (Williams, Waterman, Patterson, CACM 52, 2009). Each stage of the network
needs its operations at the matrix-product peak or its bytes at the memory's bandwidth, whichever
takes longer. Both are measured in the same campaign. The rest of a step is lost to the classes of
its trace. docs/method/limits.md says what the limit leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import networks
from analysis.display import ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, percent
from analysis.display.palette import KERNELS
from analysis.proof import plausibility
from analysis.records.reader import Campaign
from analysis.traces import kernels
from analysis.trials import breakdown
from analysis.trials.breakdown import RESIDUAL, NotExplained
from networks import work

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "int8": 1}
# What a step loses to: classes of its trace.
LOST = {
    "products": (kernels.PRODUCT, kernels.CONVOLUTION, kernels.ATTENTION),
    "element-wise and update": (kernels.ELEMENTWISE, kernels.OPTIMISER),
    "reductions": (kernels.REDUCTION,), "layout": (kernels.LAYOUT,),
    "copies and collectives": (kernels.COPY, kernels.MEMSET, kernels.COLLECTIVE),
    "idle": (kernels.IDLE,),
    "other": (kernels.UNCLASSIFIED, RESIDUAL),
}
COMPUTE, MEMORY, UNKNOWN = "limit: computing", "limit: memory", "lost, not traced"
COLOURS = {COMPUTE: "#3d4752", MEMORY: "#8b949e", UNKNOWN: "#c4ccd4",
           **{name: KERNELS[classes[0]] for name, classes in LOST.items()}, "other": "#f6f8fa"}


@dataclass(frozen=True)
class Limit:
    """The least seconds of a step: of stages bound by computing, of those bound by memory.

    `product_seconds` is the part of both that matrix products take.
    """

    compute_seconds: float
    memory_seconds: float
    product_seconds: float

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.memory_seconds


def of_trial(trial: Mapping[Any, Any], meta: Mapping[str, Any]) -> Limit | None:
    """Return the limit of a trial's step on one device; None without a peak or a known network.

    A call in inference is a step of forward stages only.
    """
    flops, bandwidth = plausibility.peak_of(trial, meta), bandwidth_of(trial, meta)
    network = networks.known(trial["network"])
    if not flops or not bandwidth or not network:
        return None
    stages = work.stages(network, int(trial["batch"]), ELEMENT_BYTES[trial["precision"]])
    if trial.get("mode") == "inference":
        stages = [stage for stage in stages if stage.phase == "forward"]
    times = [(stage, stage.flops / flops, stage.bytes / bandwidth) for stage in stages]
    return Limit(sum(compute for _, compute, memory in times if compute >= memory),
                 sum(memory for _, compute, memory in times if memory > compute),
                 sum(max(compute, memory) for stage, compute, memory in times
                     if stage.op in work.PRODUCTS and stage.phase != "update"))


def bandwidth_of(trial: Mapping[Any, Any], meta: Mapping[str, Any]) -> float | None:
    """Return the most bytes a second that any framework moved on the trial's kind of device."""
    place = trial["device_kind"], trial["threads"]
    reached = [float(peak["bytes_per_second"]) for peak in meta.get("peaks") or ()
               if peak.get("bytes_per_second") and (peak["device_kind"], peak["threads"]) == place]
    return max(reached, default=None)


def by_trial(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the verified rows that have a limit, with its seconds and a column for each of `LOST`.

    `COMPUTE`, `MEMORY` and the losses add up to `step_seconds`. Without a trace, all is `UNKNOWN`.
    """
    found: list[dict[Any, Any]] = []
    for row in trials[trials["verified"] == "yes"].to_dict("records"):
        if limit := of_trial(row, campaign.meta):
            found.append({**row, COMPUTE: limit.compute_seconds, MEMORY: limit.memory_seconds,
                          **_lost(campaign, row, limit)})
    return pd.DataFrame(found, columns=[*trials.columns, COMPUTE, MEMORY, *LOST, UNKNOWN])


def table(limits: pd.DataFrame) -> pd.DataFrame:
    """List the limit beside the time of each row, and its losses in percent of its step."""
    unit, scale = best_unit(limits["step_seconds"], TIME_UNITS)
    lost = [name for name in (*LOST, UNKNOWN) if limits[name].fillna(0.0).any()]

    def cells(row: "pd.Series[Any]") -> dict[str, str]:
        step, limit = row["step_seconds"], row[COMPUTE] + row[MEMORY]
        return {f"time ({unit})": number(step / scale), f"limit ({unit})": number(limit / scale),
                "limit / time": percent(limit / step),
                "memory's share of the limit": percent(row[MEMORY] / limit),
                "share of the peak": percent(row["mfu"]),
                **{part if part == UNKNOWN else f"lost: {part}": percent(row[part] / step)
                   for part in lost}}

    return ranking.table(limits, cells)


@style.styled
def figure(limits: pd.DataFrame) -> Figure:
    """Draw a bar a row: its limit and its losses, up to its step, which is 100 %."""
    limits = limits.reset_index(drop=True)
    shown = limits[[COMPUTE, MEMORY, *LOST, UNKNOWN]].fillna(0.0).astype(float)
    # A part below its limit has a negative loss. The largest loss gives it up, so that the limit's
    # share is the table's.
    lost = shown[[*LOST]].to_numpy()
    excess = lost.clip(max=0.0).sum(axis=1)
    lost = lost.clip(min=0.0)
    lost[np.arange(len(lost)), lost.argmax(axis=1)] += excess
    shown[[*LOST]] = lost.clip(min=0.0)
    shares = 100 * shown.div(limits["step_seconds"].astype(float), axis=0)
    parts = {str(name): share.to_numpy() for name, share in shares.items() if share.any()}
    figure, axes = style.bars(ranking.labels(limits))
    style.stack(axes, parts, COLOURS)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"share of the time of a {ranking.unit_of_work(limits)} (%)")
    style.finish(figure, "Distance from the hardware limit, and what the rest is lost to")
    return figure


def _lost(campaign: Campaign, row: Mapping[Any, Any], limit: Limit) -> dict[str, float]:
    """Return the seconds beyond the limit by cause; all `UNKNOWN` if the step has no breakdown."""
    try:
        parts = breakdown.of_trial(campaign, row["trial"]).parts
    except NotExplained:
        return {UNKNOWN: row["step_seconds"] - limit.seconds}
    lost = {name: float(parts.reindex(list(classes)).sum()) for name, classes in LOST.items()}
    lost["products"] -= limit.product_seconds
    lost["element-wise and update"] -= limit.seconds - limit.product_seconds
    return lost
