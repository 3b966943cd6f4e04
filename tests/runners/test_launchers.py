"""The launchers of Paddle, CNTK and TensorFlow: what they start is found and ended, also when a rank is killed in the middle."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from harness.workers.worker import Failed, processes_with
from runners.tensorflow import launcher
from tests.conftest import started
from tests.ready import to_train
from tests.slow import slow_but

STRATEGIES = {"paddle": "all_reduce", "tensorflow": "multi_worker", "cntk": "data_parallel"}


@pytest.fixture
def ready(tmp_path):
    """Start two ranks of a framework that have built and fed tiny_fcn: `ready("cntk")`."""
    workers = []

    def start(framework, module=None, build_limit=300):
        task = {"device": "cpu", "devices": 2, "strategy": STRATEGIES[framework]}
        worker = started(framework, module, tmp_path / f"{framework}.log", task)
        workers.append(worker)
        return to_train(worker, tmp_path, build_limit, **task)

    yield start
    for worker in workers:
        worker.end()
        assert processes_with(worker.token) == []


@pytest.mark.parametrize("framework", slow_but(["cntk"], STRATEGIES))
def test_a_killed_rank_is_named_and_nothing_of_its_launcher_is_left(ready, framework):
    worker = ready(framework)
    worker.ask("run", limit=60, steps=2)
    assert {worker.process.pid, *worker.pids.values()} <= {process.pid for process in processes_with(worker.token)}
    os.kill(worker.pids[1], signal.SIGKILL)
    with pytest.raises(Failed) as caught:
        worker.ask("run", limit=60, steps=1000)
    assert caught.value.kind == "crashed"
    assert caught.value.reason.startswith("rank 1 ended during 'run'; log: ")
    worker.end()
    assert processes_with(worker.token) == []
    assert not Path(worker.folder.name).exists()


def test_ranks_of_paddle_that_cannot_reach_one_another_end_with_the_limit_as_one_failure(ready):
    """Paddle has no limit of its own here; ranks that find one another have built tiny_fcn within 0.5 s."""
    with pytest.raises(Failed) as caught:
        ready("paddle", "tests.faults.paddle:Unreachable", build_limit=3)
    assert caught.value.kind == "timed_out"
    assert caught.value.reason.startswith("ranks 0, 1: no answer to 'build' within 3 s; log: ")


@pytest.mark.parametrize("framework", slow_but(["cntk"], STRATEGIES))
def test_every_part_of_the_step_runs_and_leaves_the_copies_alike(ready, framework):
    worker = ready(framework)
    for part in ("F", "FB", "FBA", "A", "FBAU"):
        answer = worker.ask("phase", limit=60, variant=part, steps=2)
        assert (answer["steps"], answer["stop"] > answer["start"]) == (2, True)
        one, other = worker.ask("copies", limit=60)["hashes"]
        assert one == other
    assert worker.ask("run", limit=60, steps=1)["loss"] > 0


@pytest.mark.parametrize(("seen", "own"), [(None, {"CUDA_VISIBLE_DEVICES": "1"}), ("4,7", {"CUDA_VISIBLE_DEVICES": "7"}), ("", {})])
def test_our_launcher_shows_a_rank_its_own_gpu(monkeypatch, seen, own):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert launcher.gpu_of(1) == own


def test_the_shared_memory_of_ranks_that_do_not_answer_is_cleared_away(ready):
    worker = ready("cntk")
    shared = shared_memory_of(worker.pids.values())
    assert len(shared) == 2  # Open MPI's, a file a rank
    os.kill(worker.pids[1], signal.SIGSTOP)
    with pytest.raises(Failed, match=r"timed_out: ranks? .*: no answer to 'run' within 1 s"):
        worker.ask("run", limit=1, steps=1)
    worker.end()
    assert processes_with(worker.token) == []
    assert [path for path in shared if path.exists()] == []


def shared_memory_of(pids):
    """The files under /dev/shm that these processes have mapped."""
    return {Path(area.path) for pid in pids for area in psutil.Process(pid).memory_maps() if area.path.startswith("/dev/shm/")}
