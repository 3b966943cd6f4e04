"""Each moment counts once: overlaps of equal rank are shared, lower ranks hide higher ones, a callee hides its caller."""

import numpy as np
import pytest

from analysis.traces.exposure import exposed, innermost


@pytest.mark.parametrize(("activities", "own"), [
    ([(0, 10, 0), (20, 25, 0)], [10, 5]),  # (start, end, rank)
    ([(0, 10, 0), (5, 20, 2)], [10, 10]),  # a copy that outlasts the kernel is exposed for its rest
    ([(0, 10, 0), (2, 8, 2)], [10, 0]),
    ([(0, 10, 2), (2, 8, 1), (4, 6, 0)], [4, 4, 2]),
    ([(0, 10, 0), (5, 15, 0)], [7.5, 7.5]),  # what runs together shares
    ([(0, 10, 1), (0, 10, 1), (0, 10, 1)], [10 / 3] * 3),
    ([(3, 3, 0), (3, 9, 0)], [0, 6]),
    ([], []),
])
def test_a_moment_belongs_to_the_lowest_rank_that_runs(activities, own):
    starts, ends, ranks = zip(*activities, strict=True) if activities else ((), (), ())
    assert exposed(starts, ends, ranks) == pytest.approx(own)


def test_the_parts_of_any_timeline_add_up_to_what_it_covers():
    generator = np.random.default_rng(5)
    starts = generator.integers(0, 900, 400)
    ends = starts + generator.integers(0, 40, 400)
    covered = np.zeros(1000, bool)
    for start, end in zip(starts, ends, strict=True):
        covered[start:end] = True
    assert exposed(starts, ends, generator.integers(0, 3, 400)).sum() == pytest.approx(covered.sum())


def times_of(starts, ends):
    calls, begins, finishes = innermost(starts, ends)
    return np.bincount(calls, finishes - begins, minlength=len(starts)).tolist()


def test_a_call_has_the_time_that_its_callees_leave():
    assert times_of([0, 2, 3, 20], [10, 6, 4, 30]) == [6, 3, 1, 10]


def test_calls_one_after_another_in_one_caller_are_told_apart():
    assert times_of([0, 0, 5], [10, 5, 10]) == [0, 5, 5]


def test_a_callee_that_outlives_its_caller_is_cut_off_with_it():
    assert times_of([0, 8], [10, 12]) == [8, 2]


def test_a_thread_that_did_nothing_has_no_pieces():
    assert times_of([], []) == []
