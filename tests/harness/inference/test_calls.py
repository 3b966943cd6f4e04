"""What a worker says of its calls is refused where it cannot be."""

from types import SimpleNamespace

import numpy as np
import pytest

import networks
from harness.inference.calls import Calls
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder

NAN = float("nan")


class Server:
    """Answers `serve` with a file of these arrivals and latencies."""

    def __init__(self, arrivals, latencies):
        self.answer = {"arrivals": np.float32(arrivals), "latencies": np.float32(latencies)}

    def ask(self, command, limit, out, **arguments):
        np.savez(out, **self.answer)


@pytest.mark.parametrize(("arrivals", "latencies"), [
    ([0.0, NAN, 0.2], [0.1, 0.1, 0.1]), ([-0.1, 0.1, 0.2], [0.1, 0.1, 0.1]), ([0.0, 0.2, 0.1], [0.1, 0.1, 0.1]),
    ([0.0, 0.1, 0.2], [0.1, NAN, 0.1]), ([0.0, 0.1, 0.2], [0.1, 0.0, 0.1]),
])
def test_requests_whose_times_cannot_be_are_a_failure(tmp_path, arrivals, latencies):
    asked = SimpleNamespace(network=networks.get("tiny_fcn"))
    reference = SimpleNamespace(rows=lambda file: [[0]])
    calls = Calls(Server(arrivals, latencies), reference, asked, tmp_path / "batches.npz", 60)
    with AnswerFolder(tmp_path) as folder, pytest.raises(Failed, match=r"^protocol: the file of 'serve': a request"):
        calls.serve(3, 10.0, 1, folder)
