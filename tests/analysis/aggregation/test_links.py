"""Latency and bandwidth come back out of a sweep that was made from them; what no line fits shows as a residual."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.aggregation import links
from analysis.records.text import BadRecords
from tests.analysis import simulated
from tests.analysis.simulated import LINKS, SIZES


def fit_of(seconds, sizes=SIZES):
    return links.fit(("default", 2, "send"), np.array(sizes, float), np.array(seconds, float))


def test_a_sweep_without_noise_gives_back_its_latency_and_bandwidth():
    found = fit_of([2e-5 + size / 4e10 for size in SIZES])
    assert (found.latency_seconds, found.bytes_per_second) == pytest.approx((2e-5, 4e10), rel=1e-9)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert found.seconds(3, 1e6) == pytest.approx(6e-5 + 1e6 / 4e10)


def test_intervals_hold_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(3)
    held = []
    for _ in range(300):
        found = fit_of([(2e-5 + size / 4e10) * math.exp(0.05 * generator.standard_normal()) for size in SIZES])
        held.append((found.latency_seconds_low <= 2e-5 <= found.latency_seconds_high,
                     found.bytes_per_second_low <= 4e10 <= found.bytes_per_second_high))
    assert np.mean(held, axis=0) == pytest.approx([0.95, 0.95], abs=0.035)


def test_one_more_transfer_lies_in_its_predictions_interval_as_often_as_that_says():
    generator = np.random.default_rng(4)
    held = []
    for _ in range(300):
        noise = np.exp(0.05 * generator.standard_normal(len(SIZES) + 1))
        found = fit_of([(2e-5 + size / 4e10) * factor for size, factor in zip(SIZES, noise, strict=False)])
        held.append(abs((2e-5 + 1e8 / 4e10) * noise[-1] - found.seconds(1, 1e8)) <= found.half_width(1, 1e8))
    assert np.mean(held) == pytest.approx(0.95, abs=0.035)


def test_every_link_of_a_noisy_sweep_is_found_within_a_few_per_cent():
    fits = links.fit_all(simulated.sweep(devices=(2, 4)))
    assert {(each.devices, each.link) for each in fits} == {(devices, link) for devices in (2, 4) for link in LINKS}
    for each in fits:
        assert (each.latency_seconds, each.bytes_per_second) == pytest.approx(LINKS[each.link], rel=0.06)


def test_processes_that_differ_widen_the_interval_though_each_is_a_line_of_its_own():
    one = links.fit_all(simulated.sweep(noise=0.0))[0]
    differing = links.fit_all(simulated.sweep(noise=0.1))[0]
    assert one.half_width(1, 1e8) < 1e-6 * one.seconds(1, 1e8)
    assert 0.05 < differing.half_width(1, 1e8) / differing.seconds(1, 1e8) < 1


def test_a_bend_that_no_line_follows_is_told_with_its_size():
    seconds = [2e-5 + size / 4e10 for size in SIZES]
    seconds[4] *= 1.5
    found = fit_of(seconds)
    assert found.worst_bytes == SIZES[4] and found.worst > 0.3 and found.residual > 0.1


def test_the_points_of_a_sweep_tell_what_its_line_does_not():
    seconds = [2e-5 + size / 4e10 for size in SIZES]
    seconds[4] *= 1.5
    found = fit_of(seconds)
    assert found.swept_seconds(3, 3 * SIZES[4]) == pytest.approx(3 * seconds[4], rel=1e-12)
    halfway = (SIZES[4] + SIZES[5]) / 2
    assert found.swept_seconds(1, halfway) == pytest.approx((seconds[4] + seconds[5]) / 2, rel=1e-12)
    assert found.seconds(1, SIZES[4]) < 0.8 * found.swept_seconds(1, SIZES[4])


def test_below_a_sweep_stands_its_smallest_time_and_beyond_it_its_last_rate():
    found = fit_of([2e-5 + size / 4e10 for size in SIZES])
    assert found.swept_seconds(2, 2) == pytest.approx(2 * (2e-5 + SIZES[0] / 4e10), rel=1e-12)
    assert found.swept_seconds(1, 4 * SIZES[-1]) == pytest.approx(4 * (2e-5 + SIZES[-1] / 4e10), rel=1e-12)
    assert math.isnan(simulated.truth("send").swept_seconds(1, 4096))  # a fit whose points are not known


def test_a_floor_under_asynchronous_transfers_is_found_and_leaves_the_bandwidth_alone():
    found = fit_of([max(3e-5, 2e-6 + size / 3.5e11) for size in SIZES])
    assert (found.floor_seconds, found.bytes_per_second) == (pytest.approx(3e-5), pytest.approx(3.5e11, rel=1e-6))
    assert (found.seconds(4, 4 * 4096), found.seconds(1, 2**28)) == (pytest.approx(1.2e-4), pytest.approx(2e-6 + 2**28 / 3.5e11))
    assert found.residual < 1e-6


def test_a_plain_line_gets_no_floor_from_noise():
    generator = np.random.default_rng(6)
    floors = [fit_of([(2e-5 + size / 4e10) * math.exp(0.05 * generator.standard_normal()) for size in SIZES]).floor_seconds
              for _ in range(100)]
    assert np.mean(np.array(floors) > 0) < 0.25


def test_a_link_as_fast_for_any_size_has_latency_alone():
    found = fit_of([1e-4] * len(SIZES))
    assert (found.latency_seconds, found.bytes_per_second) == (pytest.approx(1e-4), math.inf)
    assert found.seconds(2, 1e9) == pytest.approx(2e-4)


def test_points_are_medians_of_processes_so_one_bad_process_changes_nothing():
    windows = simulated.sweep(noise=0.0)
    slow = windows["process"] == 1
    windows.loc[slow, "seconds"] *= 50
    swept = links.points(windows)
    one = swept[(swept["link"] == "send") & (swept["bytes"] == SIZES[-1])].iloc[0]
    assert one["seconds"] == pytest.approx(simulated.truth("send").seconds(1, SIZES[-1]))


def test_a_trial_gets_the_fits_of_its_wire_and_of_the_nearest_number_of_devices():
    fits = links.fit_all(simulated.sweep(devices=(2, 4), wires=("default", "p2p_off")))
    chosen = links.chosen([each for each in fits if each.wire == "default" or each.link in links.WIRED], "p2p_off", 8)
    assert {(each.link, each.wire, each.devices) for each in chosen.values()} == {
        (link, "p2p_off" if link in links.WIRED else "default", 4) for link in LINKS}


def test_what_was_not_measured_is_listed_with_its_reason_and_fits_nothing(tmp_path):
    (tmp_path / "links.csv").write_text(",".join(links.LINK_COLUMNS) + "\ndefault,1,0,send,unsupported,a single device,,,,,,\n")
    windows = links.read(tmp_path / "links.csv")
    assert links.refused(windows).to_dict("records") == [
        {"wire": "default", "devices": 1, "link": "send", "status": "unsupported", "reason": "a single device"}]
    assert links.fit_all(windows) == []


def test_a_sweep_with_a_broken_row_is_refused_by_its_row(tmp_path):
    (tmp_path / "links.csv").write_text(",".join(links.LINK_COLUMNS) + "\ndefault,two,0,send,ok,,0,4096,10,0,1,1\n")
    with pytest.raises(BadRecords, match="column devices, row 2: 'two'"):
        links.read(tmp_path / "links.csv")


def test_the_table_of_fits_has_a_row_a_link():
    fits = links.fit_all(simulated.sweep())
    table = links.table(fits)
    assert isinstance(table, pd.DataFrame) and list(table["link"]) == [each.link for each in fits]
