"""The latency of a trial in inference: quantiles of its calls, from every call's recorded time."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Times

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
COLUMNS = tuple(
    column for name in (*(f"latency_{each}_seconds" for each in QUANTILES), "requests_per_second")
    for column in bootstrap.NOT_MEASURED.columns(name))
# A rate below what calls reach one after another, but for the noise between windows.
BUSY_MARGIN = 1.1
# Two clocks do not begin and end with the same request.
CLOCKS_APART = 0.05
SUM_OF_TIMES = 1e-4


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
    return _own(times, share, _nodes(campaign, trial)) if _shows(times, share) else []


def requests(campaign: Campaign, trial: str) -> dict[str, Any]:
    """Return the columns of the highest rate that kept the latency; 0 where no rate did.

    Empty without the scenario `server`. Without an interval where a process found no rate.
    """
    rows = campaign.rows("server", trial)
    if not len(rows):
        return {}
    best = (rows["rate"] * rows["within"]).groupby(rows["process"]).max()
    if not best.all():
        return {"requests_per_second": float(best.median())}
    return bootstrap.estimate([np.array([rate]) for rate in best]).columns("requests_per_second")


def against(found: dict[str, Any], call_seconds: float, batch: int, tries: pd.DataFrame
            ) -> list[str]:
    """Say where a server's rates break Little's law: the number in a system is rate times time.

    `call_seconds` is the time of a call, of `batch` requests at most; `tries` has rows of
    server.csv. Source: J. D. C. Little, A Proof for the Queuing Formula L = lambda W (1961).
    """
    reasons = []
    busy = found.get("requests_per_second", 0.0) * call_seconds / batch
    if busy > BUSY_MARGIN:
        reasons.append(f"implausible: by Little's law {busy:.2g} calls are computed at a time, and "
                       "one worker computes them one after another")
    for row in tries.to_dict("records"):
        reasons += [f"implausible: at {row['rate']:.3g} requests a second {column} is "
                    f"{row[column]:.3g}, expected {expected}"
                    for column, expected in contradicted(row)]
    return reasons[:1]


def contradicted(row: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield what in a row of server.csv breaks Little's law: the column, and what it allows.

    LoadGen's clock gives rate and latency, the worker's clock and count the number in the system.
    LoadGen's latency begins when it planned to ask, so it may be longer than the worker's. In
    records of earlier releases one clock gave all three.
    """
    counted = row["requests"] / row["seconds"]
    if math.isnan(row["completed_per_second"]):
        number = counted * row["mean_latency_seconds"]
        if not math.isclose(row["in_system"], number, rel_tol=SUM_OF_TIMES):
            yield "in_system", f"{number:.6g} by Little's law"
        return
    if not math.isclose(row["completed_per_second"], counted, rel_tol=CLOCKS_APART):
        yield "completed_per_second", f"{counted:.6g}, as the worker counted"
    most = row["completed_per_second"] * row["mean_latency_seconds"] * (1 + CLOCKS_APART)
    if not row["in_system"] <= most:
        yield "in_system", f"at most {most:.6g} by Little's law"


def _shows(times: list[Times], share: float) -> bool:
    return min(map(len, times), default=0) >= bootstrap.least_calls(share)


def _estimate(campaign: Campaign, trial: str, times: list[Times], share: float
              ) -> bootstrap.Estimate:
    """Estimate a quantile over processes, or over nodes where several repeated the campaign."""
    nodes = _nodes(campaign, trial)
    return bootstrap.estimate(_own(times, share, nodes)) if nodes else \
        bootstrap.quantile(times, share)


def _own(times: list[Times], share: float, nodes: list[str]) -> list[Times]:
    """Return the quantile of each process, by node where `nodes` names them."""
    own = [np.array([bootstrap.quantile([calls], share).value]) for calls in times]
    return bootstrap.by_node(own, nodes)


def _nodes(campaign: Campaign, trial: str) -> list[str]:
    return campaign.nodes_of(trial, campaign.ok_rows("processes", trial)["process"])


def remarks(campaign: Campaign, trial: str, first_window: int) -> list[str]:
    """Say which quantiles are left out, and how many calls they need."""
    fewest = min(map(len, calls_of(campaign, trial, first_window)))
    left = [f"{name} needs {bootstrap.least_calls(share)}" for name, share in QUANTILES.items()
            if fewest < bootstrap.least_calls(share)]
    return [f"{fewest} timed calls in a process: {', '.join(left)}"] if left else []
