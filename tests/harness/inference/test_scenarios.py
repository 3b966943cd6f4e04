"""A summary of LoadGen becomes a row, or a failure that names what it lacks."""

import pytest

from harness.inference.scenarios import row_of
from harness.workers.failures import Failed

SUMMARY = """Result is : INVALID
  Min duration satisfied : NO
Samples per second: 1234.5
Mean latency (ns)               : 2000000
50.00 percentile latency (ns)   : 1.5e+06
90.00 percentile latency (ns)   : 2500000
99.00 percentile latency (ns)   : 3000000
"""
ANSWER = {"steps": 7, "start": 1.0, "stop": 3.5}
COMMON = {"batch": 4, "calls": 7, "seconds": 2.5, "valid": 0, "unmet": "min duration"}


def test_multistream_has_latencies_and_the_rate_that_follows_from_their_mean():
    assert row_of("multistream", 4, ANSWER, SUMMARY) == pytest.approx({
        "scenario": "multistream", **COMMON, "latency_mean_seconds": 0.002, "latency_p50_seconds": 0.0015,
        "latency_p90_seconds": 0.0025, "latency_p99_seconds": 0.003, "samples_per_second": 2000.0})


def test_offline_has_a_rate_alone():
    assert row_of("offline", 4, ANSWER, SUMMARY) == {"scenario": "offline", **COMMON, "samples_per_second": 1234.5}


@pytest.mark.parametrize("number", ["", "1.2.3", "-", "e"])
def test_a_summary_without_a_number_is_a_failure(number):
    with pytest.raises(Failed, match=r"^protocol: LoadGen's summary has no line '50.00 percentile latency \(ns\)'$"):
        row_of("multistream", 4, ANSWER, SUMMARY.replace("1.5e+06", number))


@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_mean_latency_that_is_not_positive_is_a_failure(number):
    with pytest.raises(Failed, match=r"^protocol: LoadGen's summary has a mean latency that is not positive$"):
        row_of("multistream", 4, ANSWER, SUMMARY.replace("2000000", number))
