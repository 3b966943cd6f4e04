"""A snapshot that is not the network's float weights is a failure, whatever the worker wrote."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import networks
import runners.arrays
from harness.accuracy.evaluation import Examiner
from harness.data import arrays
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder

NETWORK = networks.get("tiny_fcn")


def weights(kind=np.float32):
    return {name: np.zeros(shape, kind) for name, shape in NETWORK.parameter_shapes.items()}


@pytest.fixture
def snapshot(tmp_path):
    """Let a stand-in for a worker write a snapshot by `write(file)`, and read it."""

    def take(write):
        def ask(command, limit, out):
            write(Path(out))

        with AnswerFolder(tmp_path) as folder:
            examiner = Examiner(NETWORK, None, "fp32", tmp_path, 1.0, None, folder)
            return dict(arrays.mapped(examiner.snapshot(SimpleNamespace(ask=ask))))

    return take


def test_the_weights_of_the_network_are_copied(snapshot):
    found = snapshot(lambda file: runners.arrays.save(file, weights()))
    assert found.keys() == weights().keys() and all(not each.any() for each in found.values())


@pytest.mark.parametrize(("write", "said"), [
    (lambda file: file.write_bytes(b"no archive"), "the file of answers cannot be read: BadZipFile: "),
    (lambda file: None, "the file of answers: No such file or directory"),
    (lambda file: runners.arrays.save(file, {}), "the snapshot's weights are not those of the network"),
    (lambda file: runners.arrays.save(file, {"other": np.zeros(3)}), "the snapshot's weights are not those of the network"),
    (lambda file: runners.arrays.save(file, weights("S4")), "the snapshot's weights are not those of the network"),
])
def test_another_snapshot_is_a_failure(snapshot, write, said):
    with pytest.raises(Failed, match=f"^protocol: {said}"):
        snapshot(write)
