"""A server's requests: the search finds the highest rate, as the theory of queues says, and no invalid one."""

import math
import queue
import time

import numpy as np
import pytest
from scipy import optimize

from analysis.statistics import bootstrap
from harness.inference import scenarios, server
from runners import scenarios as played_by

CALL, BOUND = 0.002, 0.02
# A try of a minute has so many requests that the rule of early stopping costs little.
GOAL = server.Goal(BOUND, 99, 60.0, 600.0)


def late_share(rate, call=CALL, bound=BOUND):
    """The share of requests that take longer than the bound in an M/D/1 queue.

    Erlang, The Theory of Probabilities and Telephone Conversations (1909): of the wait t before a call of D seconds,
    P(W <= t) = (1 - rho) sum over k <= t/D of (lambda (k D - t))^k / k! exp(-lambda (k D - t)).
    """
    wait = bound - call
    terms = [(rate * (k * call - wait)) ** k / math.factorial(k) * math.exp(-rate * (k * call - wait))
             for k in range(int(wait / call + 1e-9) + 1)]
    return 1 - (1 - rate * call) * sum(terms)


def rate_of(share, call=CALL, bound=BOUND):
    """The rate at which this share is late."""
    return optimize.brentq(lambda rate: late_share(rate, call, bound) - share, 1, 0.999 / call)


def queued(calls, sloth=lambda number: 0.0):
    """Serves as one worker whose calls take so long, and `sloth` longer. LoadGen's verdict is made here."""

    def serve(wanted):
        rng = np.random.default_rng(wanted["seed"])
        arrivals = np.cumsum(rng.exponential(1 / wanted["rate"], wanted["requests"]))
        answered, free = [], 0.0
        for number, arrival in enumerate(arrivals):
            free = max(free, arrival) + calls + sloth(number)
            answered.append(free)
        latencies = np.array(answered) - arrivals
        reached = np.sort(latencies)[int(wanted["share"] * len(latencies))]
        late = int((latencies > wanted["latency_seconds"]).sum())
        valid = int(reached <= wanted["latency_seconds"]
                    and bootstrap.stops_early(late, len(latencies), wanted["share"]))
        row = {"latency_mean_seconds": float(latencies.mean()), "valid": valid, "unmet": "" if valid else "early stopping",
               "samples_per_second": len(arrivals) / answered[-1], "calls": len(arrivals)}
        return server.Served(row, float(reached), late, arrivals, latencies)

    return serve


def highest(found):
    return max((row["rate"] for row in found.tries if row["within"]), default=0.0)


def test_erlangs_formula_is_the_queue_that_is_simulated():
    served = queued(CALL)({"rate": 400.0, "requests": 200_000, "seed": 1, "share": 0.99, "latency_seconds": BOUND})
    assert served.late / 200_000 == pytest.approx(late_share(400.0), rel=0.1)
    # Pollaczek and Khinchine, constant service: W = S + rho S / 2 (1 - rho).
    assert served.latencies.mean() == pytest.approx(CALL + 0.8 * CALL / 2 / 0.2, rel=0.05)


def test_the_highest_rate_is_that_of_theory():
    found = server.seek(queued(CALL), GOAL, 1 / CALL, 1)
    step = 1 / CALL / 2**server.TRIES
    assert len(found.tries) == server.TRIES
    assert rate_of(0.004) - step < highest(found) < rate_of(0.01) + step
    assert found.best["valid"] == 1 and found.best["samples_per_second"] == pytest.approx(highest(found), rel=0.02)
    for row in found.tries:
        assert row["in_system"] == pytest.approx(row["completed_per_second"] * row["mean_latency_seconds"], rel=0.01)


def test_one_slow_call_in_a_hundred_lowers_it():
    quick = server.seek(queued(CALL), GOAL, 1 / CALL, 1)
    some = server.seek(queued(CALL, lambda number: 0.012 * (number % 100 == 50)), GOAL, 1 / CALL, 1)
    too_slow = server.seek(queued(CALL, lambda number: 0.02 * (number % 100 == 50)), GOAL, 1 / CALL, 1)
    assert highest(quick) > highest(some) > highest(too_slow) == 0
    assert too_slow.best == {"calls": 0, "valid": 0, "unmet": "no rate that was tried kept the latency"}


def test_a_run_that_loadgen_calls_invalid_is_no_rate():
    def invalid(wanted):
        served = queued(CALL)(wanted)
        return served._replace(played={**served.played, "valid": 0, "unmet": "min duration"})

    found = server.seek(invalid, GOAL, 1 / CALL, 1)
    assert highest(found) == 0 and found.best["valid"] == 0
    assert {row["unmet"] for row in found.tries} == {"min duration"}


def test_a_verdict_that_the_late_requests_contradict_does_not_count():
    def says_valid(wanted):
        served = queued(1.5 * CALL)(wanted)
        return served._replace(played={**served.played, "valid": 1, "unmet": ""})

    late = [row for row in server.seek(says_valid, GOAL, 1 / CALL, 1).tries if not row["within"]]
    assert late and {(row["valid"], row["unmet"]) for row in late} == {(1, server.OWN_COUNT)}


def test_a_try_that_would_last_too_long_is_left_out_and_says_so():
    found = server.seek(queued(1.0), server.Goal(2.0, 99, 1.0, 60.0), 1.0, 1)
    assert found.tries == []
    assert found.best["unmet"] == "a try of 459 requests at 0.5 a second takes longer than half of limits.window"


def test_a_call_answers_the_samples_that_wait_up_to_a_batch():
    asked = queue.Queue()
    for query in ([1], [2], [3], [4, 5, 6, 7, 8], None):
        asked.put(query)
    # With the end in the queue, what stands before it is answered as far as batches are full.
    assert list(played_by.batches_of(asked, 2)) == [[1, 2], [3, 4], [5, 6], [7, 8]]
    asked.put([1, 2, 3])
    assert next(played_by.batches_of(asked, 8)) == [1, 2, 3]


class Sleeps:
    """An engine whose calls sleep."""

    def __init__(self, seconds):
        self.seconds = seconds

    def step(self):
        time.sleep(self.seconds)

    def synchronize(self):
        """A call is done when it returns."""


@pytest.mark.parametrize(("call", "valid"), [(0.001, 1), (0.15, 0)])
def test_loadgen_judges_a_server_and_the_worker_counts_the_same_requests(tmp_path, call, valid):
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen has no wheel for this Python")
    wanted = {"scenario": "server", "batch": 2, "seconds": 0.2, "rate": 200.0, "latency_seconds": 0.14, "share": 0.5,
              "percentile": 50, "requests": 40, "seed": 3}
    out, times = tmp_path / "logs.txt", tmp_path / "times.npz"
    calls, samples, start, stop = played_by.play(Sleeps(call), wanted, out, times)
    row = scenarios.row_of("server", 2, {"steps": calls, "start": start, "stop": stop}, out.read_text())
    reached, late = scenarios.of_server(50, out.read_text())
    assert (row["valid"], row["calls"]) == (valid, calls) and 40 <= samples <= 2 * calls
    assert (reached <= 0.14) == bool(valid) and bootstrap.stops_early(late, samples, 0.5) == bool(valid)
    if not valid:
        assert "performance constraints" in row["unmet"] and calls == pytest.approx(samples / 2, abs=3)
    with np.load(times) as found:
        arrivals, latencies = found["times"]
        assert len(latencies) == samples and (np.diff(arrivals) >= 0).all()
        # LoadGen's latency begins when it planned to ask.
        assert call < latencies.mean() <= 1.01 * row["latency_mean_seconds"]
