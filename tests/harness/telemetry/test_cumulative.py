"""Totals from counters that wrap, stop or start anew, and from sensors; every doubt is a reason and never a number."""

import pytest

from harness.telemetry.cumulative import Count, Integral, joined, pcie_bytes_per_second

LINK = pcie_bytes_per_second(5, 16)


def test_a_link_carries_what_its_generation_and_lanes_do():
    gigabytes = [round(pcie_bytes_per_second(generation, 16) / 1e9, 2) for generation in (1, 2, 3, 4, 5)]
    assert gigabytes == [4.0, 8.0, 15.75, 31.51, 63.02]
    assert pcie_bytes_per_second(4, 8) == pcie_bytes_per_second(3, 16)
    assert pcie_bytes_per_second(None, None) == pcie_bytes_per_second(6, 16)  # unknown: as if it were the fastest


def test_a_count_begins_at_zero_whatever_the_counter_shows():
    count = Count(2**32, LINK)
    assert [count.add(raw, seconds) for raw, seconds in ((7_000, 1.0), (9_000, 1.02))] == ["", ""]
    assert count.total == 2_000


def test_a_wrap_goes_on_counting():
    count = Count(2**32, LINK)
    assert [count.add(raw, seconds) for raw, seconds in ((2**32 - 100, 1.0), (400, 1.02), (500, 1.04))] == ["", "", ""]
    assert count.total == 600


@pytest.mark.parametrize(("gap", "reason"), [
    (0.068, ""), (0.069, "no reading for 69 ms, and the counter can wrap unseen in 68 ms"),
])
def test_a_gap_in_which_a_wrap_could_be_missed_breaks_the_count(gap, reason):
    count = Count(2**32, LINK)
    count.add(0, 1.0)
    assert count.add(1_000, 1.0 + gap) == reason
    assert count.total == (0 if reason else 1_000)
    assert count.add(3_000, 1.02 + gap) == ""
    assert count.total == (2_000 if reason else 3_000)


def test_a_counter_of_64_bits_has_no_gap_and_falls_only_when_it_was_reset():
    count = Count(None, LINK)
    assert [count.add(raw, seconds) for raw, seconds in ((0, 0.0), (2**33, 60.0), (5, 60.02), (10, 60.04))] == [
        "", "", "the counter was reset", ""]
    assert count.total == 2**33 + 5


def test_a_counter_that_moves_faster_than_its_link_was_reset():
    count = Count(2**32, LINK)
    count.add(2**31, 1.0)
    assert count.add(0, 1.001) == "the counter was reset: it moved by more than the link can carry"
    assert count.total == 0


def test_a_counter_that_is_not_of_a_link_only_wraps():
    count = Count(1_000)
    assert [count.add(raw, seconds) for raw, seconds in ((990, 0.0), (10, 100.0))] == ["", ""]
    assert count.total == 20


def test_power_becomes_energy_by_trapezoids():
    joules = Integral()
    assert [joules.add(watts, seconds) for watts, seconds in ((100, 0.0), (300, 0.1), (300, 0.2))] == ["", "", ""]
    assert joules.total == pytest.approx(20 + 30)
    assert joules.add(300, 0.8) == "no reading for 600 ms"
    assert joules.total == pytest.approx(50)


@pytest.mark.parametrize(("total", "change"), [(Count(2**32, LINK), 10), (Count(), 10), (Integral(), 0.2)])
def test_a_reading_that_is_older_than_the_one_before_adds_nothing(total, change):
    assert [total.add(value, seconds) for value, seconds in ((10, 1.0), (15, 0.9))] == [
        "", "a reading that is 100 ms older than the one before"]
    assert total.total == 0
    assert total.add(20, 1.0 + 0.04 / 3) == "" and total.total == pytest.approx(change)  # on from the newer one


def test_reasons_are_joined_by_what_they_concern():
    assert joined({"pcie": "a gap", "nvlink": "", "energy": "a reset"}) == "pcie: a gap; energy: a reset"
    assert joined({"pcie": ""}) == ""
