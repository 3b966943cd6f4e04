"""A server's requests: they come at random, and the highest rate within a latency bound is sought.

Arrivals are a Poisson process that waits for no answer (open loop), as in MLPerf's Server scenario;
requests queue for one worker. Bisection finds the rate, below the rate of calls that follow one
another.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.statistics import bootstrap

# Halvings: the rate is known to a thirty-second of the most that calls allow.
TRIES = 5

# Takes a number of requests, a rate per second and a seed; returns arrivals and latencies (s).
Serve = Callable[[int, float, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Goal:
    """The latency that a share of requests must keep, and how long a rate is tried at least."""

    latency_seconds: float
    share: float
    least_seconds: float
    most_seconds: float


def tried(serve: Serve, goal: Goal, call_seconds: float, seed: int) -> Iterator[dict[str, Any]]:
    """Try rates and yield a row of server.csv for each. Stops where a try would last too long."""
    low, high = 0.0, 1 / call_seconds
    for number in range(TRIES):
        rate = (low + high) / 2
        requests = max(bootstrap.least_calls(goal.share), math.ceil(rate * goal.least_seconds))
        if requests / rate > goal.most_seconds:
            return
        row = row_of(rate, *serve(requests, rate, seed + number), goal)
        yield row
        low, high = (rate, high) if row["within"] else (low, rate)


def row_of(rate: float, arrivals: np.ndarray, latencies: np.ndarray, goal: Goal) -> dict[str, Any]:
    """Describe the requests of one try.

    `in_system` is the mean number of requests that are there, over time. It is counted from
    arrivals and departures, and Little's law gives it too.
    """
    arrivals, latencies = arrivals.astype(float), latencies.astype(float)
    departures = arrivals + latencies
    moments = np.concatenate([arrivals, departures])
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(np.repeat([1, -1], len(arrivals))[order])
    seconds = float(moments[order[-1]])
    inside = float((present[:-1] * np.diff(moments[order])).sum()) / seconds
    rank = max(1, math.ceil(goal.share * len(latencies)))
    reached = float(np.sort(latencies)[rank - 1])
    return {"rate": rate, "requests": len(latencies), "seconds": seconds, "in_system": inside,
            "mean_latency_seconds": float(latencies.mean()), "latency_seconds": reached,
            "within": int(reached <= goal.latency_seconds)}
