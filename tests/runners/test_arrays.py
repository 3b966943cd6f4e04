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
