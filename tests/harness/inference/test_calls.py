"""What a worker says of its calls is refused where it cannot be."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import networks
from harness.inference.calls import Calls
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder

NAN = float("nan")
WANTED = {"scenario": "server", "batch": 1, "percentile": 99}
LOGS = """Completed samples per second    : 10.5
Result is : VALID
Mean latency (ns)               : 100000000
50.00 percentile latency (ns)   : 100000000
90.00 percentile latency (ns)   : 100000000
99.00 percentile latency (ns)   : 250000000
:::MLLOG {"key": "result_overlatency_query_count", "value": 2, "time_ms": 1.0}
"""


class Server:
    """Answers `scenario` with a file of these arrivals and latencies, and LoadGen's logs."""

    def __init__(self, arrivals, latencies):
        self.times = np.array([arrivals, latencies], np.float32)

    def ask(self, command, limit, out, times=None, **arguments):
        if command == "output":
            np.savez(out, outputs=np.zeros((1, 5), np.float32))
            return {}
        np.savez(times, times=self.times)
        Path(out).write_text(LOGS)
        return {"steps": 3, "samples": self.times.shape[1], "start": 0.0, "stop": 1.0}


@pytest.mark.parametrize(("arrivals", "latencies"), [
    ([0.0, NAN, 0.2], [0.1, 0.1, 0.1]), ([-0.1, 0.1, 0.2], [0.1, 0.1, 0.1]), ([0.0, 0.2, 0.1], [0.1, 0.1, 0.1]),
    ([0.0, 0.1, 0.2], [0.1, NAN, 0.1]), ([0.0, 0.1, 0.2], [0.1, 0.0, 0.1]),
])
def test_requests_whose_times_cannot_be_are_a_failure(tmp_path, arrivals, latencies):
    asked = SimpleNamespace(network=networks.get("tiny_fcn"))
    reference = SimpleNamespace(rows=lambda file: [[0]])
    calls = Calls(Server(arrivals, latencies), reference, asked, tmp_path / "batches.npz", 60)
    with AnswerFolder(tmp_path) as folder, pytest.raises(Failed, match=r"^protocol: requests.npz: a request is"):
        calls.serve(WANTED, folder)


def test_what_loadgen_and_the_worker_say_of_a_server_is_read(tmp_path):
    asked = SimpleNamespace(network=networks.get("tiny_fcn"))
    calls = Calls(Server([0.0, 0.1, 0.2], [0.1, 0.1, 0.3]), SimpleNamespace(rows=lambda file: [[0]]), asked,
                  tmp_path / "batches.npz", 60)
    with AnswerFolder(tmp_path) as folder:
        found = calls.serve(WANTED, folder)
    assert (found.reached, found.late, found.played["samples_per_second"]) == (0.25, 2, 10.5)
    assert found.latencies.tolist() == pytest.approx([0.1, 0.1, 0.3])


def test_a_server_may_answer_many_requests(tmp_path):
    arrivals = np.arange(100_000) / 1000
    calls = Calls(Server(arrivals, np.full(100_000, 0.1)), SimpleNamespace(rows=lambda file: [[0]]),
                  SimpleNamespace(network=networks.get("tiny_fcn")), tmp_path / "batches.npz", 60)
    with AnswerFolder(tmp_path) as folder:
        assert calls.serve(WANTED, folder).arrivals[-1] == pytest.approx(99.999)


def test_a_server_whose_log_counts_no_late_requests_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.LOGS", LOGS.replace("overlatency", "other"))
    with pytest.raises(Failed, match=r"^protocol: LoadGen's log has no result_overlatency_query_count$"):
        test_what_loadgen_and_the_worker_say_of_a_server_is_read(tmp_path)
