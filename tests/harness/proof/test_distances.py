"""Errors of moves: what they measure, what rounding of stored weights makes of them, and NaN.

Tensors of several blocks and threads are compared as a whole one would be, wherever a fault lies.
"""

import math

import numpy as np
import pytest

import networks
from analysis.proof.tolerances import LATER_STEPS
from harness.proof import distances
from harness.proof.distances import Errors, errors_from
from runners.comparisons import (
    BLOCK,
    SHARE,
    apart,
    hash_of,
    momentum_pairs,
    products_of,
    products_of_all,
    unchanged,
)

SIZE = SHARE + 2 * BLOCK + 3
RATE, MOMENTUM = 0.1, 0.9


@pytest.fixture
def generator():
    return np.random.default_rng(1)


@pytest.fixture
def start(generator):
    return generator.standard_normal(SIZE).astype(np.float32)


@pytest.fixture
def gradient(generator):
    return generator.standard_normal(SIZE)


def stepped(start: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return (start - RATE * gradient).astype(np.float32)


def test_a_right_step_has_no_error_however_its_weights_were_rounded(start, gradient):
    error = distances.step_errors(start, stepped(start, gradient), gradient, RATE)
    assert (error.coefficient, error.norm, error.distance) == (0.0, 0.0, 0.0)
    assert error.size == pytest.approx(RATE * math.sqrt(SIZE), rel=0.01)
    # A stored weight of 1 is off by up to 2^-24, and the step is a tenth of it.
    assert error.rounded_distance == pytest.approx(2**-24 / RATE, rel=0.05)
    assert error.rounded_coefficient < error.rounded_distance / 100


@pytest.mark.parametrize("times", [0.0, 0.5, 0.999, 1.05, -1.0])
def test_a_scaled_gradient_shows_in_its_coefficient_its_norm_and_its_distance(start, gradient,
                                                                             times):
    error = distances.step_errors(start, stepped(start, times * gradient), gradient, RATE)
    assert error.coefficient == pytest.approx(times - 1, abs=1e-6)
    assert error.norm == pytest.approx(abs(times) - 1, abs=1e-6)
    assert error.distance == pytest.approx(abs(times - 1), abs=1e-6)


def test_what_stands_across_the_gradient_shows_in_norm_and_distance_alone(start, gradient,
                                                                          generator):
    across = generator.standard_normal(SIZE)
    across -= gradient * (across @ gradient) / (gradient @ gradient)
    across *= 0.5 * np.linalg.norm(gradient) / np.linalg.norm(across)
    error = distances.step_errors(start, stepped(start, gradient + across), gradient, RATE)
    assert error.coefficient == pytest.approx(0, abs=1e-6)
    assert error.norm == pytest.approx(math.sqrt(1.25) - 1, abs=1e-6)
    assert error.distance == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1e-7])
def test_rounding_of_stored_weights_explains_the_distance_of_tiny_steps(start, gradient, generator,
                                                                       size):
    tiny = size * gradient
    noisy = tiny * (1 + 0.02 * generator.standard_normal(SIZE))
    error = distances.step_errors(start, stepped(start, noisy), tiny, RATE)
    assert 0 < error.distance < 2 * error.rounded_distance
    assert abs(error.coefficient) < 6 * error.rounded_coefficient + 0.02
    assert error.beyond_rounding < 0.5 * error.size


def test_a_step_too_small_for_its_weights_must_not_show():
    start, gradient = np.ones(SIZE, np.float32), np.full(SIZE, 1e-12)
    error = distances.step_errors(start, start, gradient, RATE)
    assert error == Errors(0.0, 0.0, 0.0)
    moved = distances.step_errors(start, stepped(start, np.ones(SIZE)), gradient, RATE)
    assert moved.coefficient == moved.norm == moved.distance == math.inf


@pytest.mark.parametrize("place", [0, BLOCK, SIZE - 1])
def test_a_fault_in_any_block_is_seen_and_nan_is_kept(start, gradient, place):
    after = stepped(start, gradient)
    after[place] += 1000
    assert distances.step_errors(start, after, gradient, RATE).distance > 1
    after[place] = np.nan
    error = distances.step_errors(start, after, gradient, RATE)
    assert all(map(math.isnan, (error.coefficient, error.norm, error.distance)))


@pytest.mark.parametrize("times", [0.0, 0.85, 0.9, 0.95, 1.9])
def test_what_momentum_added_is_told_from_the_step_before(start, gradient, generator, times):
    second = stepped(start, gradient)
    later = generator.standard_normal(SIZE)
    own = stepped(second, later)
    third = stepped(second, later + times * gradient)
    error = errors_from(products_of(momentum_pairs(MOMENTUM), start, second, own, third))
    assert error.coefficient == pytest.approx(times / MOMENTUM - 1, abs=1e-6)
    assert error.distance == pytest.approx(abs(times / MOMENTUM - 1), abs=1e-4)
    assert error.rounded_coefficient < 1e-6


def test_a_momentum_of_tiny_steps_is_known_within_what_rounding_makes_of_it(start, generator):
    tiny = 3e-6 * generator.standard_normal(SIZE)
    second = stepped(start, tiny)
    own, third = stepped(second, tiny), stepped(second, tiny + MOMENTUM * tiny)
    error = errors_from(products_of(momentum_pairs(MOMENTUM), start, second, own, third))
    # Rounding lengthens the move before, so that the share of it that is found is less.
    lengthened = error.rounded_distance**2
    assert 0.1 < error.distance < error.rounded_distance
    assert 0.01 < -error.coefficient < lengthened + 6 * error.rounded_coefficient < 0.2
    still = errors_from(products_of(momentum_pairs(MOMENTUM), start, start, start, start))
    assert (still.coefficient, still.distance) == (0.0, 0.0)


def test_errors_without_rounding_are_those_of_the_whole(gradient):
    error = distances.errors_of(1.01 * gradient, gradient)
    found = (error.coefficient, error.norm, error.distance)
    assert found == pytest.approx((0.01, 0.01, 0.01), rel=1e-9)
    assert error.beyond_rounding == pytest.approx(0.01 * np.linalg.norm(gradient), rel=1e-9)


@pytest.mark.parametrize(("share", "error"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_moves_after_the_whole_steps_are_compared_alone(generator, share, error):
    """What `share` of the later gradients did not arrive; the first two did."""
    network = networks.get("tiny_fcn")
    rate, momentum = network.learning_rate, network.momentum
    start, files, ours = {}, ({}, {}), {}
    for name, shape in network.parameter_shapes.items():
        gradients = generator.standard_normal((LATER_STEPS, *shape))
        start[name] = generator.standard_normal(shape)

        def moved(gradients, name=name, shape=shape):
            velocity, weights = np.zeros(shape), start[name].copy()
            for gradient in gradients:
                velocity = momentum * velocity + gradient
                weights -= rate * velocity
            return weights

        for file, steps in zip(files, (2, LATER_STEPS), strict=True):
            file[f"gradient/{name}"] = gradients[0]
            file[f"parameter/{name}"] = moved(gradients[:steps])
        gradients[2:] *= 1 - share
        ours[name] = moved(gradients)
    errors = distances.later_errors(network, 2, (ours, *files, start))
    assert list(errors) == list(network.parameter_shapes)
    assert max(errors.values()) == pytest.approx(error, abs=1e-4)


def test_sums_need_no_order_of_rows_and_columns():
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    sums = distances.sums_of(lambda a, b: (a * b, a), matrix, np.ascontiguousarray(matrix))
    assert sums == [55.0, 15.0]


def test_tensors_that_are_compared_together_have_the_sums_of_each_alone(start, gradient):
    rows = {"all": (start, gradient), "few": (start[:5], gradient[:5]), "none": (start[:0],) * 2}

    def squares(one, other):
        return [(one, one), (one, other)]

    assert products_of_all(squares, rows) == {
        name: products_of(squares, *pair) for name, pair in rows.items()}
    assert products_of_all(squares, rows)["none"] == [0.0, 0.0]


@pytest.mark.parametrize("place", [0, SHARE, SIZE - 1])
def test_one_number_that_changed_is_seen_in_its_tensor_alone(start, place):
    changed = start.copy()
    changed[place] = np.nan
    assert unchanged({"a": (start, start.copy()), "b": (start, changed), "c": (start[:0],) * 2}) \
        == {"a": True, "b": False, "c": True}


@pytest.mark.parametrize("place", [0, SHARE, SIZE - 1])
def test_copies_that_come_apart_are_measured_in_any_share_and_nan_is_kept(start, place):
    one, other = start + np.float32(1), start + np.float32(1)
    weights = {"weight": start, "zero": np.zeros(3, np.float32)}
    one, other = {"weight": one, "zero": np.zeros(3, np.float32)}, {"weight": other, "zero": -np.zeros(3, np.float32)}
    assert apart([one, other], weights, 0) == {"zero": {"share": 0.0, "beyond": 0.0}}
    before = hash_of(other)
    other["weight"][place] += 0.5
    assert apart([one, other], weights, 2)["weight"]["share"] == pytest.approx(1 / 3, abs=1e-5)
    assert hash_of(other) != before
    other["weight"][place] = np.nan
    assert apart([one, other], weights, 2)["weight"] == {"share": math.inf, "beyond": math.inf}
