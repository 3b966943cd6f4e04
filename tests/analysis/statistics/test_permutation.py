"""The permutation test within blocks: exact values, worked out by hand."""

import itertools

import numpy as np
import pytest

from analysis.statistics import permutation


def test_values_that_are_equal_or_balanced_show_no_difference():
    assert permutation.alike(np.full((5, 3), 4)).p == 1
    assert permutation.alike(np.array([[1, 2], [2, 1]])).p == 1


def test_a_shift_in_every_block_has_the_probability_of_one_order():
    values = np.array([[3, 5]] * 5)
    assert permutation.alike(values) == permutation.Result(2 / 2**5, 2**-4)
    assert permutation.fewer(values[:, 0], values[:, 1]) == 2**-5
    assert permutation.fewer(values[:, 1], values[:, 0]) == 1
    three = np.array([[1, 2, 4]] * 5)
    assert permutation.alike(three) == permutation.Result(6**-4, 6**-4)


def test_the_probability_is_that_of_all_orders_counted_one_by_one():
    values = np.array([[3, 4, 4], [5, 3, 6], [2, 2, 3]])
    def statistic(rows):
        return np.square(np.sum(rows, axis=0)).sum()
    every = [statistic(rows) for rows in itertools.product(*(list(itertools.permutations(row)) for row in values))]
    assert permutation.alike(values).p == pytest.approx(np.mean(np.array(every) >= statistic(values)))


def test_many_treatments_are_drawn_and_agree_with_the_exact_test(monkeypatch):
    values = np.random.default_rng(3).integers(3, 6, (4, 4))
    exact = permutation.alike(values)
    monkeypatch.setattr(permutation, "MOST_EXACT", 3)
    assert permutation.alike(values).p == pytest.approx(exact.p, abs=0.02)


def test_chance_alone_is_called_a_difference_in_at_most_a_twentieth_of_cases():
    generator = np.random.default_rng(0)
    found = [permutation.alike(generator.integers(3, 7, (5, 3))).p for _ in range(300)]
    assert np.mean(np.array(found) <= 0.05) < 0.09


def test_other_seeds_are_compared_as_one_sample_that_could_be_split_otherwise():
    few, many = np.array([1, 1]), np.array([2, 2, 2])
    assert permutation.smaller(few, many) == pytest.approx(1 / 10, abs=0.01)
    assert permutation.smaller(many, few) == 1
    assert permutation.smaller(np.full(3, 2), many) == 1
