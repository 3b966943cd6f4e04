"""What a worker does to its file after its answer changes nothing that the driver has read."""

import os

import numpy as np
import pytest

from harness.data import arrays
from harness.workers import files
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder


def test_a_file_that_is_cut_after_it_was_mapped_ends_no_driver(tmp_path):
    """Reading a map behind the end of its file is SIGBUS, which nothing catches."""
    numbers = np.arange(2**16, dtype=np.float32)
    with AnswerFolder(tmp_path) as folder:
        np.savez(folder.path("1.npz"), numbers=numbers)
        with folder.open("1.npz", 2**20) as file:
            found = arrays.mapped_from(file)
        os.truncate(folder.path("1.npz"), 0)
        assert np.array_equal(found["numbers"], numbers)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", bytes(4096)])
def test_a_file_that_holds_no_arrays_is_a_failure(tmp_path, content):
    with AnswerFolder(tmp_path) as folder:
        folder.path("1.npz").write_bytes(content)
        with pytest.raises(Failed, match=r"^protocol: the file of answers cannot be read: "), \
                folder.open("1.npz", 2**20) as file:
            files.arrays_in(file)


def test_a_file_that_grows_after_its_size_was_asked_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fault_of", lambda *_: "")
    with AnswerFolder(tmp_path) as folder:
        folder.path("1.npz").write_bytes(bytes(2**20))
        with pytest.raises(Failed, match=r"^protocol: the file of answers: grew beyond 524,288 bytes$"), \
                folder.open("1.npz", 2**19):
            pass
