"""Requests at random: the open loop keeps to its arrivals, and the search finds the highest rate."""

import numpy as np
import pytest

from harness.inference import server
from runners import inference

GOAL = server.Goal(0.1, 0.99, 1.0, 600.0)


class Clock:
    """A clock that sleeping and calls move, and that each look moves a little."""

    def __init__(self, call_seconds):
        self.now, self.call_seconds = 0.0, call_seconds

    def __call__(self):
        self.now += 2e-5
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def step(self):
        self.now += self.call_seconds

    def synchronize(self):
        """A call is done when it returns."""


def served(call_seconds, requests, rate, seed=1):
    """The arrivals, and the latencies of a queue that takes so long for each request."""
    arrivals = np.cumsum(np.random.RandomState(seed).exponential(1 / rate, requests))
    clock = Clock(call_seconds)
    _, answered = inference.open_loop(clock, arrivals, clock, clock.sleep)
    return arrivals, answered - arrivals


def test_a_request_waits_for_those_before_it_and_no_other():
    clock = Clock(0.5)
    _, answered = inference.open_loop(clock, np.array([1.0, 1.2, 9.0]), clock, clock.sleep)
    assert answered.tolist() == pytest.approx([1.5, 2.0, 9.5], abs=0.01)


def test_a_queue_is_as_long_as_theory_says():
    # Pollaczek and Khinchine, constant service: W = S + rho S / 2 (1 - rho).
    rate, call = 50.0, 0.01
    arrivals, latencies = served(call, 20000, rate)
    row = server.row_of(rate, arrivals, latencies, GOAL)
    assert row["mean_latency_seconds"] == pytest.approx(call + 0.5 * call / 2 / 0.5, rel=0.05)
    assert row["in_system"] == pytest.approx(row["requests"] / row["seconds"] * row["mean_latency_seconds"])


def test_the_highest_rate_lies_where_the_latency_is_reached():
    rows = list(server.tried(lambda requests, rate, seed: served(0.01, requests, rate, seed), GOAL, 0.01, 1))
    within = [row["rate"] for row in rows if row["within"]]
    beyond = [row["rate"] for row in rows if not row["within"]]
    assert len(rows) == server.TRIES and max(within) < min(beyond) and 60 < max(within) < 100
    assert all(row["requests"] >= 299 for row in rows)


def test_a_slow_engine_reaches_no_rate_and_a_long_try_is_left_out():
    def slow(requests, rate, seed):
        return served(0.2, requests, rate, seed)

    rows = list(server.tried(slow, server.Goal(0.1, 0.99, 1.0, 1e9), 0.2, 1))
    assert not any(row["within"] for row in rows) and len(rows) == server.TRIES
    assert list(server.tried(slow, server.Goal(0.1, 0.99, 1.0, 60.0), 0.2, 1)) == []


def test_one_slow_call_in_a_hundred_is_in_the_latency_of_99_in_a_hundred():
    calls = np.full(1000, 0.001)
    calls[::90] = 0.5
    arrivals = np.arange(1000.0)
    assert server.row_of(1.0, arrivals, calls, GOAL)["latency_seconds"] == 0.5
    assert server.row_of(1.0, arrivals, np.full(1000, 0.001), GOAL)["latency_seconds"] == 0.001
