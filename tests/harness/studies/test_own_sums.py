"""The sum over nodes of other frameworks than PyTorch: what is asked of their runners, and the rows that come of it."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from harness.data.inputs import Inputs
from harness.studies import own_sums
from harness.studies.aggregation import Effort
from harness.workers.failures import Failed
from tests.harness.studies.test_aggregation import trial

EFFORT = Effort(processes=1, windows=2, window_seconds=0.01, largest_bytes=2**16)


@pytest.fixture
def asked(monkeypatch):
    """Let a stand-in answer for the worker: a sum takes 4 ms. It notes what it is asked, and fails at a part of the step if told."""
    def answer(fails=""):
        told = []

        class Worker:
            def ask(self, command, limit, **arguments):
                told.append((command, arguments))
                if command == fails:
                    raise Failed("crashed", "rank 1 ended")
                steps = arguments.get("steps", 0)
                return {"start": 1.0, "stop": 1.0 + 0.004 * steps}

        @contextmanager
        def start(environment, trial, log):
            yield Worker()

        monkeypatch.setattr(own_sums, "start", start)
        return told

    return answer


def swept(tmp_path, framework="jax"):
    other = replace(trial(2, nodes=2, ranks=2), framework=framework)
    return list(own_sums.sweep(other, None, Inputs(tmp_path, seed=0), EFFORT, tmp_path / "log"))


@pytest.mark.parametrize(("framework", "tensors"), [("jax", 8), ("tensorflow", 1)])
def test_a_message_is_a_tensor_of_so_many_bytes_or_all_of_them(asked, tmp_path, framework, tensors):
    told = asked()
    rows = swept(tmp_path, framework)
    networks = [arguments["network"] for command, arguments in told if command == "build"]
    shapes = [[shape for layer in network["layers"] for shape in layer["parameters"].values()] for network in networks]
    assert shapes == [[[63, 63, 1, 1]] * tensors, [[126, 126, 1, 1]] * tensors]
    assert [row["bytes"] for row in rows] == [15876, 15876, 63504, 63504]
    assert {row["link"] for row in rows} == {f"{framework}_all_reduce"}
    # Pilots of 4 ms fill a window of 10 ms with three sums.
    assert [(row["window"], row["steps"], round(row["seconds"], 6)) for row in rows] == [
        (0, 3 * tensors, 0.012), (1, 3 * tensors, 0.012)] * 2
    assert [arguments["variant"] for command, arguments in told if command == "phase"] == ["A"] * 12


def test_a_framework_that_fails_is_one_row_with_the_reason(asked, tmp_path):
    asked(fails="phase")
    [row] = swept(tmp_path)
    assert (row["link"], row["status"], row["reason"]) == ("jax_all_reduce", "failed", "crashed: rank 1 ended")
