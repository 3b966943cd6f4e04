"""Files of arrays that are mapped, and transposes by strips: nothing is lost, and no file changes."""

import numpy as np
import pytest

from runners import arrays

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(("shape", "axes"), [
    ((5,), (0,)), ((130, 7), (1, 0)), ((130, 7), (0, 1)), ((70, 3, 5, 2), (2, 3, 1, 0)),
    ((5, 2, 3, 70), (3, 2, 0, 1)), ((2, 3, 4), (1, 2, 0)), ((65, 1), (1, 0))])
def test_a_transpose_by_strips_is_numpys(shape, axes):
    array = RANDOM.standard_normal(shape).astype(np.float32)
    found = arrays.transposed(array, axes)
    np.testing.assert_array_equal(found, array.transpose(axes), strict=True)
    assert found.flags.c_contiguous and not np.shares_memory(found, array)


def test_many_arrays_are_transposed_and_copied_together_and_large_ones_by_shares():
    shapes = {"small": (3, 2, 2, 5), "large": (2, 2, 700, 300), "matrix": (900, 700), "bias": (5,)}
    axes = {"small": (3, 2, 0, 1), "large": (3, 2, 0, 1), "matrix": (1, 0), "bias": (0,)}
    given = {name: RANDOM.standard_normal(shape) for name, shape in shapes.items()}
    assert len(arrays.shares(given["large"].T)) > 1 and len(arrays.shares(given["matrix"])) > 1
    turned = arrays.all_transposed({name: (given[name], axes[name]) for name in given})
    assert list(turned) == list(given)
    for name, array in given.items():
        wanted = array.transpose(axes[name]).astype(np.float32)
        np.testing.assert_array_equal(turned[name], wanted, strict=True)
    copies = arrays.copied({**given, "scalar": np.float32(3), "none": np.zeros((0, 2))})
    assert (copies.pop("scalar"), copies.pop("none").shape) == (3, (0, 2))
    for name, array in given.items():
        np.testing.assert_array_equal(copies[name], array, strict=True)
        assert not np.shares_memory(copies[name], array)


@pytest.mark.parametrize("least", [1, 64])
def test_shares_are_every_row_once(least):
    array = np.broadcast_to(0, (1000, 1300))
    found = arrays.shares(array, least)
    assert [row for share in found for row in range(1000)[share]] == list(range(1000))
    assert len(found) > 1 and all(share.start % least == 0 for share in found)
    assert len(arrays.shares(np.zeros(()))) == 1 and arrays.shares(np.zeros((0, 3))) == []


def test_an_error_in_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        arrays.in_threads(lambda job: 1 // job, [1, 0, 1])


def test_numpy_reads_what_is_written_and_each_array_begins_on_a_cache_line(tmp_path):
    wanted = {"a": RANDOM.standard_normal(3), "1/parameters/\u00fc.weight": np.ones((4, 6))[:, ::2],
              "none": np.zeros((0, 2), np.float32), "steps": np.arange(7, dtype=np.int32)}
    arrays.save(tmp_path / "some.npz", wanted)
    mapped = arrays.mapped(tmp_path / "some.npz")
    with np.load(tmp_path / "some.npz") as loaded:
        assert list(mapped) == loaded.files == list(wanted)
        for name, value in wanted.items():
            np.testing.assert_array_equal(mapped[name], value, strict=True)
            np.testing.assert_array_equal(loaded[name], value, strict=True)
            assert value.size == 0 or mapped[name].ctypes.data % arrays.LINE == 0


def test_writing_to_a_map_changes_no_file(tmp_path):
    file = tmp_path / "some.npz"
    arrays.save(file, {"a": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="read-only"):
        arrays.mapped(file)["a"][0] = 1
    arrays.mapped(file, "c")["a"][0] = 1
    assert arrays.mapped(file)["a"].tolist() == [0, 0, 0]
