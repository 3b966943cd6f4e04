"""PyTorch's ranks under the real torchrun: what happens to one of them is one outcome, and nothing is left behind."""

import os
import signal

import pytest

import networks
from harness.environments import recipes
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, processes_with
from tests.ready import to_train
from tests.slow import slow


@pytest.fixture
def ranks(tmp_path, interpreter_of):
    """Start two ranks of a module under torchrun, with changes of how they are launched; at the end nothing of them is left."""
    started = []

    def start(module="runners.pytorch.runner", **changes):
        parallel = recipes.load("pytorch").parallel.model_copy(update=changes)
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        started.append(Ranks(Launch(parallel, 2), interpreter_of("pytorch"), module, tmp_path / "log", variables))
        return started[-1]

    yield start
    for each in started:
        each.end()
        assert processes_with(each.token) == []


def build(worker, **task):
    worker.ask("hello", limit=120)
    worker.ask("build", limit=120, **{"network": networks.get("tiny_fcn").to_json(), "batch": 2, "devices": 2, "ranks": 2,
                                      "strategy": "ddp", **task})


def test_a_killed_rank_is_named(ranks):
    worker = ranks()
    build(worker)
    os.kill(worker.pids[1], signal.SIGKILL)
    with pytest.raises(Failed) as caught:
        worker.ask("copies", limit=60)
    assert caught.value.kind == "crashed"
    assert caught.value.reason.startswith("rank 1 ended during 'copies'; log: ")


def test_a_rendezvous_that_cannot_be_reached_ends_the_launcher_with_the_reason(ranks):
    unreachable = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1",
                   "--rdzv-conf=is_host=0,read_timeout=2", "--nnodes=1", "--nproc-per-node={devices}", "-m"]
    with pytest.raises(Failed) as caught:
        ranks(launch=unreachable).ask("hello", limit=120)
    assert caught.value.kind == "crashed"
    assert "the launcher ended during 'hello' with exit code 1" in caught.value.reason
    assert "RendezvousConnectionError" in caught.value.reason


@slow
def test_ranks_that_cannot_reach_one_another_fail_within_their_wait(ranks):
    with pytest.raises(Failed) as caught:
        build(ranks("tests.faults.pytorch.ranks:Unreachable"))
    assert caught.value.kind == "crashed"
    assert "DistNetworkError" in caught.value.reason


def test_a_first_all_reduce_that_does_not_come_back_is_named_with_what_helps(ranks):
    with pytest.raises(Failed) as caught:
        build(ranks("tests.faults.pytorch.ranks:DoNotMeet"))
    assert caught.value.kind == "crashed"
    assert caught.value.reason.startswith("rank 0: RuntimeError: the first all-reduce of 2 devices did not end in 2 s; where GPUs")
    assert caught.value.reason.endswith("NCCL_P2P_DISABLE=1 sends through the host's memory")


def test_each_rank_drops_units_of_its_own(worker_for):
    with worker_for("pytorch", "pytorch.ranks:Units", {"devices": 2}) as worker:
        build(worker, network=networks.get("tiny_dropout").to_json(), dropout=True, seed=1)
        one, other = worker.ask("copies", limit=60)["hashes"]
    assert one != other


def test_a_window_lasts_until_the_slowest_rank_is_done(worker_for, tmp_path):
    with worker_for("pytorch", "pytorch.ranks:Slow", {"devices": 2}) as worker:
        to_train(worker, tmp_path, 120, devices=2, ranks=2, strategy="ddp")
        answer = worker.ask("run", limit=60, steps=1)
    assert answer["stop"] - answer["start"] >= 0.3
