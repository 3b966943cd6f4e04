"""Each strategy's legs, times and bytes are those of its messages."""

import math
from dataclasses import replace

import pytest

from analysis.aggregation import times
from analysis.strategies import aggregating
from analysis.strategies import table as strategies
from analysis.strategies.facts import Leg, Work
from tests.analysis.simulated import truths

S = 1e8


def legs(strategy, devices):
    return strategies.STRATEGIES[strategy].legs(Work(S, devices))


def test_a_ring_of_four_shifts_six_quarters_and_adds_three():
    assert legs("ring", 4) == [Leg("device_copy", 2, 1.25 * S), Leg("shift", 6, 1.5 * S), Leg("device_sum", 3, 0.75 * S)]


def test_a_tree_of_four_has_two_levels_and_of_five_three():
    assert legs("tree", 4)[1] == Leg("pair", 4, 4 * S)
    assert legs("tree", 5)[1] == Leg("pair", 6, 6 * S)


def test_one_device_gathers_what_all_others_send():
    assert legs("gather", 4)[1:] == [Leg("fan_in", 1, 3 * S), Leg("fan_out", 1, 3 * S), Leg("device_sum", 3, 3 * S)]


def test_the_host_goes_over_the_buffers_of_all():
    assert legs("host_one", 4) == [Leg("device_copy", 1, S), Leg("to_host", 1, S), Leg("host_sum_one", 1, 13 / 3 * S),
                                   Leg("from_host", 1, S)]
    assert legs("host_all", 2)[2] == Leg("host_sum_all", 1, 7 / 3 * S)


def test_bf16_compress_sends_half_and_rounds_divides_and_restores_each_bucket():
    assert (S + S / 2) + (S / 2 + S / 2) + (S / 2 + S) == 2 * 2 * S  # read and written, in bytes; a copy of S touches 2 S
    assert strategies.STRATEGIES["bf16_compress"].legs(Work(S, 4, (S / 4, 3 * S / 4))) == [
        Leg("all_reduce", 1, S / 8), Leg("all_reduce", 1, 3 * S / 8), Leg("device_copy", 3, S / 2), Leg("device_copy", 3, 1.5 * S)]


def test_one_bit_packs_swaps_and_restores_twice_the_second_time_a_part():
    assert legs("one_bit", 4) == [
        Leg("device_copy", 1, S), Leg("bit_pack", 1, S), Leg("swap", 1, 0.75 * S * 136 / 4096), Leg("bit_unpack", 1, S),
        Leg("device_copy", 1, (S + S / 4) / 2), Leg("bit_pack", 1, S / 4), Leg("swap", 1, 0.75 * S * 136 / 4096),
        Leg("bit_unpack", 1, S), Leg("device_copy", 1, S)]
    sent = sum(leg.size_bytes for leg in legs("one_bit", 4) if leg.link == "swap")
    assert 4 * sent == strategies.wire_bytes("one_bit", Work(S, 4))


def test_a_floor_holds_for_each_bucket_and_not_for_their_mean():
    fits = {"all_reduce": replace(truths()["all_reduce"], floor_seconds=1e-3)}
    small, large = 1e6, S - 1e6
    found = times.predict("ddp", Work(S, 4, (small, large)), fits)
    assert found.value == pytest.approx(1e-3 + 60e-6 + large / 30e9)


def test_what_a_link_errs_by_it_errs_by_in_each_of_its_legs():
    fits = {"all_reduce": replace(truths()["all_reduce"], covariance=(0.0, 0.0, 1e-26))}
    whole, halves = (times.predict("ddp", Work(S, 4, buckets), fits) for buckets in ((), (S / 2, S / 2)))
    assert halves.high - halves.value == pytest.approx(whole.high - whole.value) == pytest.approx(2e-13 * S)


def test_by_points_each_message_takes_what_one_of_its_size_does():
    """Powers of ten as times, so that a message that is taken for another, or left out, shows in the sum."""
    points = {"shift": ((S / 4, 1.0), (1.5 * S, 100.0)), "device_sum": ((S / 4, 0.1),), "device_copy": ((0.625 * S, 0.01),)}
    fits = {link: replace(truths()[link], points=own) for link, own in points.items()}
    assert times.swept(legs("ring", 4), fits) == pytest.approx(6 * 1.0 + 3 * 0.1 + 2 * 0.01)
    assert math.isnan(times.swept(legs("gather", 4), fits))  # for want of its links


def test_a_prediction_is_the_sum_of_its_legs_and_needs_every_fit():
    fits = truths()
    expected = 6 * 25e-6 + 1.5 * S / 38e9 + 3 * 4e-6 + 0.75 * S / 900e9 + 2 * 3e-6 + 1.25 * S / 1300e9
    assert times.predict("ring", Work(S, 4), fits).value == pytest.approx(expected)
    del fits["shift"]
    assert math.isnan(times.predict("ring", Work(S, 4), fits).value)
    assert times.missing("ring", fits) == "no fit of shift"


def test_one_device_aggregates_nothing():
    assert times.predict("ring", Work(S, 1), truths()).value == 0


def test_a_strategy_without_a_model_says_why():
    assert [times.missing(name, truths()) for name in ("power_sgd", "hierarchical_copy", "ring")] == [
        aggregating.FACTORISED, aggregating.NO_MODEL, ""]


def test_bytes_are_those_of_the_messages():
    assert [strategies.wire_bytes(name, Work(S, 4)) for name in ("ring", "tree", "gather", "ddp", "host_one")] == [6 * S] * 4 + [0]
    assert [strategies.wire_bytes(name, Work(4096e4, 4)) for name in ("bf16_compress", "one_bit")] == [3 * 4096e4, 6 * 136e4]
    assert all(math.isnan(told("power_sgd", Work(S, 4))) for told in (strategies.wire_bytes, strategies.host_bytes))
    assert [strategies.host_bytes(name, Work(S, 4)) for name in ("ring", "host_one", "host_all")] == [0, 4 * S, 4 * S]


@pytest.mark.parametrize("strategy, expected", [("ring", 6 * 20e-6 + 1.5 * S / 40e9), ("tree", 4 * (20e-6 + S / 40e9)),
                                                ("gather", 6 * (20e-6 + S / 40e9))])
def test_the_textbook_knows_messages_alone(strategy, expected):
    assert times.total(strategies.STRATEGIES[strategy].textbook(Work(S, 4)), truths()).value == pytest.approx(expected)
