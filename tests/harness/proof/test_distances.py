"""Tensors of several blocks are compared as a whole one would be, wherever in them a fault lies."""

import math

import numpy as np
import pytest

from harness.proof import distances
from harness.proof.distances import BLOCK

SIZE = 2 * BLOCK + 3


@pytest.fixture
def tensors():
    """Ours in float32, the reference, and where both began."""
    generator = np.random.default_rng(1)
    start = generator.standard_normal(SIZE).astype(np.float32)
    reference = start - 0.1 * generator.standard_normal(SIZE)
    return reference.astype(np.float32), reference, start


def test_a_move_of_several_blocks_has_the_error_of_the_whole(tensors):
    ours, reference, start = tensors
    ours = ours + np.float32(0.01)
    moved, wanted = ours.astype(float) - start, reference - start
    rounding = 3 * 2.0**-24 * np.linalg.norm(start.astype(float))
    whole = (np.linalg.norm(moved - wanted) - rounding) / np.linalg.norm(wanted)
    assert distances.move_error(ours, reference, start, 3) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("place", [0, BLOCK, SIZE - 1])
def test_a_fault_in_any_block_is_seen_and_nan_is_kept(tensors, place):
    ours, reference, start = tensors
    assert distances.move_error(ours, reference, start, 1) < 1e-6
    ours[place] += 1000
    assert distances.move_error(ours, reference, start, 1) > 1
    ours[place] = np.nan
    assert math.isnan(distances.move_error(ours, reference, start, 1))


def test_sums_need_no_order_of_rows_and_columns():
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert distances.sums_of(lambda a, b: (a * b, a), matrix, np.ascontiguousarray(matrix)) == [55.0, 15.0]
