"""Marks tests that `make test` leaves out: each repeats what a quicker one covers. slow.txt lists more, by their time."""

import pytest

slow = pytest.mark.slow


def slow_where(is_slow, rows):
    """Mark the parameters that `is_slow` picks; a row is a value, or a tuple of several."""
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=slow)
            if is_slow(row) else row for row in rows]


def slow_but(quick, rows):
    """Mark all parameters except those in `quick`."""
    return slow_where(lambda row: row not in quick, rows)
