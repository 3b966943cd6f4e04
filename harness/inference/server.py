"""MLPerf's Server scenario: the highest rate of random requests that keeps a latency.

LoadGen sends each try's requests as a Poisson process, which waits for no answer. Bisection finds
the rate, below that of calls that follow one another. A rate counts if LoadGen calls the run valid
and so few requests were late that its rule of early stopping holds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from analysis.statistics import bootstrap

SCENARIO = "server"
# Halvings: the rate is known to a thirty-second of the most that calls allow.
TRIES = 5
TOO_LONG = ("a try of {requests} requests at {rate:.3g} a second takes longer than half of "
            "limits.window")
OWN_COUNT = "early stopping, as dlbench counts it"
NO_RATE = "no rate that was tried kept the latency"


@dataclass(frozen=True)
class Goal:
    """The latency that a percentile of requests keeps, and how long a rate is tried at least."""

    latency_seconds: float
    percentile: float
    least_seconds: float
    most_seconds: float

    @property
    def share(self) -> float:
        """Of the requests."""
        return self.percentile / 100


class Served(NamedTuple):
    """A run of LoadGen: its row of scenarios.csv, the latency (s) at the percentile, late requests.

    The worker's clock has the requests' arrivals (s, in order) and their latencies (s) from there.
    """

    played: dict[str, Any]
    reached: float
    late: int
    arrivals: np.ndarray
    latencies: np.ndarray


# Takes what LoadGen is told beside the scenario and the batch.
Serve = Callable[[Mapping[str, Any]], Served]


class Found(NamedTuple):
    """The tries' rows of server.csv, and what of the best one stands in scenarios.csv."""

    tries: list[dict[str, Any]]
    best: dict[str, Any]


def seek(serve: Serve, goal: Goal, most_rate: float, seed: int) -> Found:
    """Find the highest rate of samples a second that keeps the goal, below `most_rate`."""
    tries: list[dict[str, Any]] = []
    best: dict[str, Any] = {"calls": 0, "valid": 0, "unmet": NO_RATE}
    low, high = 0.0, most_rate
    for number in range(TRIES):
        rate = (low + high) / 2
        requests = max(bootstrap.least_calls(goal.share, bootstrap.OF_LOADGEN),
                       math.ceil(rate * goal.least_seconds))
        if requests / rate > goal.most_seconds:
            if not tries:
                best["unmet"] = TOO_LONG.format(requests=requests, rate=rate)
            break
        served = serve({"rate": rate, "latency_seconds": goal.latency_seconds, "share": goal.share,
                        "percentile": goal.percentile, "requests": requests,
                        "seed": seed + number})
        row = row_of(rate, served, goal)
        tries.append(row)
        if row["within"]:
            best = served.played
        low, high = (rate, high) if row["within"] else (low, rate)
    return Found(tries, best)


def row_of(rate: float, served: Served, goal: Goal) -> dict[str, Any]:
    """Describe the requests of one try.

    `in_system` is the mean number of requests that are there, by the worker's clock. Little's law
    gives the most that it can be from LoadGen's rate and mean latency.
    """
    played = served.played
    arrivals, latencies = served.arrivals.astype(float), served.latencies.astype(float)
    seconds = float((arrivals + latencies).max() - arrivals[0])
    kept = bootstrap.stops_early(served.late, len(latencies), goal.share)
    return {"rate": rate, "requests": len(latencies), "seconds": seconds,
            "in_system": float(latencies.sum()) / seconds,
            "mean_latency_seconds": played["latency_mean_seconds"],
            "latency_seconds": served.reached,
            "within": int(played["valid"] and kept),
            "completed_per_second": played["samples_per_second"], "late": served.late,
            "valid": played["valid"],
            "unmet": played["unmet"] or ("" if kept else OWN_COUNT)}
