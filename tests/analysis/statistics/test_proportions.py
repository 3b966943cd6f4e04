"""The interval of a difference of two shares on the same samples."""

import numpy as np
import pytest

from analysis.statistics import proportions


@pytest.mark.parametrize(("counts", "difference", "low", "high"), [
    # Complete response before and after consolidation therapy (Cavo et al. 2012), as the R package contingencytables
    # tests its Newcombe_square_and_add_CI_paired_2x2, of Fagerland, Lydersen and Laake's book.
    ((59, 6, 16, 80), -0.0621, -0.1186, -0.0046),
])
def test_the_interval_is_the_published_one(counts, difference, low, high):
    assert proportions.of_counts(*counts) == pytest.approx((difference, low, high), abs=5e-5)


def test_answers_are_counted_in_pairs_and_sides_can_be_exchanged():
    both, only, lost, neither = 59, 6, 16, 80
    one = np.repeat([True, True, False, False], [both, only, lost, neither])
    other = np.repeat([True, False, True, False], [both, only, lost, neither])
    found = proportions.paired_difference(one, other)
    assert found == proportions.of_counts(both, only, lost, neither)
    difference, low, high = proportions.paired_difference(other, one)
    assert (difference, low, high) == pytest.approx((-found[0], -found[2], -found[1]))
    with pytest.raises(ValueError, match="came 2 and 1 answers"):
        proportions.paired_difference(one[:2], other[:1])


def test_equal_answers_leave_an_interval_that_many_samples_narrow():
    _, low, high = proportions.of_counts(97, 0, 0, 3)
    _, narrow, narrow_high = proportions.of_counts(9700, 0, 0, 300)
    assert low < narrow < 0 < narrow_high < high and narrow_high < 0.001 < high
    # All are right: no correlation can be estimated, and the shares still have intervals.
    assert proportions.of_counts(100, 0, 0, 0)[1:] == pytest.approx((-0.037, 0.037), abs=5e-4)


@pytest.mark.parametrize("shares", [(0.95, 0.02, 0.01, 0.02), (0.90, 0.03, 0.03, 0.04), (0.960, 0.004, 0.001, 0.035)])
def test_the_interval_holds_what_it_should_in_95_of_100_cases(shares):
    drawn = np.random.default_rng(1).multinomial(1000, shares, size=2000)
    ends = np.array([proportions.of_counts(*map(int, counts))[1:] for counts in drawn])
    true = shares[1] - shares[2]
    held = np.mean((ends[:, 0] <= true) & (true <= ends[:, 1]))
    # Two thousand draws know 95 % to 1 %.
    assert 0.93 <= held <= 1 and (held <= 0.99 or shares[1] < 0.01)


def test_wilsons_interval_is_the_one_of_statistics_texts():
    # Newcombe's first example of his paper on single proportions: 81 of 263.
    assert proportions.wilson(81, 263) == pytest.approx((0.3080, 0.2553, 0.3662), abs=5e-5)
    assert proportions.wilson(0, 20)[1:] == pytest.approx((0, 0.1611), abs=5e-5)
