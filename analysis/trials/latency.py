"""The latency of a trial in inference: quantiles of its calls, from every call's recorded time."""

from typing import Any

import numpy as np

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Times

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
COLUMNS = tuple(
    column for name in (*(f"latency_{each}_seconds" for each in QUANTILES), "requests_per_second")
    for column in bootstrap.NOT_MEASURED.columns(name))
# A rate below what calls reach one after another, but for the noise between windows.
BUSY_MARGIN = 1.1


def calls_of(campaign: Campaign, trial: str, first_window: int = 0) -> list[Times]:
    """Collect the seconds of every call of a trial from `first_window` on, one array an ok process.
    """
    rows = campaign.rows("latencies", trial)
    rows = rows[rows["window"] >= first_window].sort_values(["process", "window", "first"])
    texts = rows.groupby("process")["nanoseconds"].agg(" ".join)
    return [1e-9 * np.array(texts.get(process, "").split(), float)
            for process in campaign.ok_rows("processes", trial)["process"]]


def columns(campaign: Campaign, trial: str, first_window: int) -> dict[str, Any]:
    """Return `COLUMNS`; a quantile that too few calls show is left out."""
    times = calls_of(campaign, trial, first_window)
    found: dict[str, Any] = {}
    for name, share in QUANTILES.items():
        if _shows(times, share):
            estimate = _estimate(campaign, trial, times, share)
            found |= estimate.columns(f"latency_{name}_seconds")
    return found


def of_processes(campaign: Campaign, trial: str, first_window: int, name: str) -> list[Times]:
    """Collect a quantile of each ok process's calls in seconds, by node where several repeated.

    Empty where a process has too few calls to show it.
    """
    times, share = calls_of(campaign, trial, first_window), QUANTILES[name]
    if not _shows(times, share):
        return []
    own = [np.array([bootstrap.quantile([calls], share).value]) for calls in times]
    ok = campaign.ok_rows("processes", trial)["process"]
    return bootstrap.by_node(own, campaign.nodes_of(trial, ok))


def requests(campaign: Campaign, trial: str) -> dict[str, Any]:
    """Return the columns of the highest rate that kept the latency; 0 where no rate did.

    Empty without `server` in the suite.
    """
    rows = campaign.rows("server", trial)
    if not len(rows):
        return {}
    best = (rows["rate"] * rows["within"]).groupby(rows["process"]).max()
    if not best.all():
        return {"requests_per_second": float(best.median())}
    return bootstrap.estimate([np.array([rate]) for rate in best]).columns("requests_per_second")


def against(found: dict[str, Any], step_seconds: float) -> list[str]:
    """Say that requests are answered faster than Little's law allows one worker."""
    busy = found.get("requests_per_second", 0.0) * step_seconds
    if busy <= BUSY_MARGIN:
        return []
    return [f"implausible: by Little's law {busy:.2g} requests are computed at a time, and one "
            "worker computes them one after another"]


def _shows(times: list[Times], share: float) -> bool:
    return min(map(len, times), default=0) >= bootstrap.least_calls(share)


def _estimate(campaign: Campaign, trial: str, times: list[Times], share: float
              ) -> bootstrap.Estimate:
    """Estimate a quantile over processes, or over nodes where several repeated the campaign."""
    nodes = campaign.nodes_of(trial, campaign.ok_rows("processes", trial)["process"])
    if not nodes:
        return bootstrap.quantile(times, share)
    own = [np.array([bootstrap.quantile([calls], share).value]) for calls in times]
    return bootstrap.estimate(bootstrap.by_node(own, nodes))


def remarks(campaign: Campaign, trial: str, first_window: int) -> list[str]:
    """Say which quantiles are left out, and how many calls they need."""
    fewest = min(map(len, calls_of(campaign, trial, first_window)))
    left = [f"{name} needs {bootstrap.least_calls(share)}" for name, share in QUANTILES.items()
            if fewest < bootstrap.least_calls(share)]
    return [f"{fewest} timed calls in a process: {', '.join(left)}"] if left else []
