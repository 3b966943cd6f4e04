"""The interval must cover what it claims when processes differ more than their windows, and say nothing where it cannot."""

import math

import numpy as np
import pytest

from analysis import statistics


def draw(rng, processes, windows=10, spread=0.1, noise=0.01):
    """Step times whose true median is 1; process effects ten times the windows' noise unless said otherwise."""
    effects = spread * rng.standard_normal((processes, 1))
    return list(np.exp(effects + noise * rng.standard_normal((processes, windows))))


def test_the_estimate_is_the_median_of_medians():
    times = [np.array([1.0, 2.0, 9.0]), np.array([3.0, 3.0, 3.0]), np.array([5.0, 4.0, 6.0])]
    assert statistics.estimate(times).value == 3.0


def test_the_same_seed_gives_the_same_interval():
    times = draw(np.random.default_rng(1), 5)
    assert statistics.estimate(times) == statistics.estimate(times)


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_than_three_processes_give_no_interval(processes):
    found = statistics.estimate(draw(np.random.default_rng(1), processes))
    assert (found.has_interval, found.processes) == (False, processes)
    assert math.isnan(statistics.ratio(draw(np.random.default_rng(2), 6), draw(np.random.default_rng(1), processes)).low)


def test_identical_windows_give_an_interval_of_no_width():
    found = statistics.estimate([np.full(4, 0.25)] * 3)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_processes_may_have_unequal_numbers_of_windows():
    found = statistics.estimate([np.array([1.0]), np.array([1.0, 1.1]), np.array([0.9, 1.0, 1.1])])
    assert 0.5 < found.low <= found.value <= found.high < 2


@pytest.mark.parametrize("times", [[], [np.array([])], [np.array([1.0, 0.0])], [np.array([1.0, np.nan])]])
def test_times_that_are_none_are_refused(times):
    with pytest.raises(ValueError, match="window"):
        statistics.estimate(times)


@pytest.mark.parametrize("windows", [4, 5])
def test_the_beta_shortcut_draws_what_resampling_windows_draws(windows):
    rng = np.random.default_rng(3)
    times = [np.sort(rng.random(windows)) + 1]
    short = statistics._draws(times, np.random.default_rng(4))
    long = np.median(times[0][rng.integers(windows, size=(statistics.DRAWS, windows))], axis=1)
    assert np.quantile(short, [0.1, 0.3, 0.5, 0.7, 0.9]) == pytest.approx(np.quantile(long, [0.1, 0.3, 0.5, 0.7, 0.9]), abs=0.02)


@pytest.mark.parametrize("processes", [5, 6, 7, 10])
def test_a_95_percent_interval_covers_at_least_93_percent(processes):
    """Found with 1500 trials: 0.975, 0.971, 0.941 and 0.968; a plain percentile interval 0.939, 0.937, 0.889 and 0.934."""
    rng = np.random.default_rng(processes)
    trials = 400
    hits = sum(statistics.estimate(draw(rng, processes), seed).contains(1.0) for seed in range(trials))
    assert hits / trials > 0.93 - 2 * math.sqrt(0.05 * 0.95 / trials)  # two standard errors of this simulation


def test_pooled_windows_would_not_cover():
    """The negative control: one process of all windows, cut into five, as a harness without processes would have it."""
    rng = np.random.default_rng(6)
    hits = sum(statistics.estimate(np.split(draw(rng, 1, windows=50)[0], 5), seed).contains(1.0) for seed in range(200))
    assert hits / 200 < 0.3


def test_a_release_against_itself_is_rarely_called_different():
    rng = np.random.default_rng(7)
    wrong = sum(not statistics.ratio(draw(rng, 6), draw(rng, 6), seed).contains(1.0) for seed in range(300))
    assert wrong / 300 < 0.07


def test_a_ratio_finds_a_difference_that_is_there():
    rng = np.random.default_rng(8)
    found = statistics.ratio([1.3 * times for times in draw(rng, 6, spread=0.01)], draw(rng, 6, spread=0.01))
    assert 1.2 < found.low < found.value < found.high < 1.4
