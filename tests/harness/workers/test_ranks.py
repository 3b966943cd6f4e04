"""Ranks are asked as one worker, and every way in which one of them can go wrong is one typed outcome that names it."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harness.environments import recipes
from harness.environments.recipes import Parallel
from harness.workers.ranks import Launch, Ranks
from harness.workers.reading import merged
from harness.workers.worker import Failed, Timeouts, Unsupported, processes_with
from tests.parallel import PARALLEL
from tests.ready import to_train


@pytest.fixture
def ranks(tmp_path):
    """Start the ranks of tests.faults.NAME; at the end nothing of them is left."""
    started = []

    def start(name="processes.ranks", count=2, parallel=PARALLEL, **options):
        started.append(Ranks(Launch(parallel, count), sys.executable, f"tests.faults.{name}", tmp_path / f"{name}.log", **options))
        return started[-1]

    yield start
    for each in started:
        each.end()
        assert processes_with(each.token) == []
        assert not Path(each.folder.name).exists()


@pytest.fixture
def ready(ranks, tmp_path):
    """Start ranks that have built and fed tiny_fcn with global batches of four samples."""

    def start(name="processes.ranks", count=2, **options):
        worker = ranks(name, count, **options)
        return to_train(worker, tmp_path, batch=4 // count, devices=count, ranks=count)

    return start


def failure_of(worker, command="run", limit=60.0, **arguments):
    with pytest.raises(Failed) as caught:
        worker.ask(command, limit=limit, **(arguments or {"steps": 1}))
    return caught.value


def test_ranks_answer_as_one(ready):
    worker = ready()
    answer = worker.ask("run", limit=60, steps=3)
    assert sorted(answer) == ["loss", "peak_memory_bytes", "start", "steps", "stop"]
    assert answer["steps"] == 3
    assert answer["stop"] > answer["start"]
    one, other = worker.ask("copies", limit=60)["hashes"]
    assert one == other


def test_ranks_that_rested_build_and_train_again(ready):
    worker = ready("processes.ranks:Memory")
    with pytest.raises(Failed, match=r"out_of_memory: rank [01]: MemoryError: another worker holds the memory"):
        ready("processes.ranks:Memory")
    worker.ask("run", limit=60, steps=1)
    assert worker.ask("rest", limit=60) == {}
    assert ready("processes.ranks:Memory").ask("run", limit=60, steps=1)["steps"] == 1


def test_two_ranks_have_the_loss_of_one_device_with_the_whole_batch(ready):
    losses = [[ready(count=count).ask("run", limit=60, steps=1)["loss"] for _ in range(2)] for count in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_a_rank_that_is_killed_is_crashed_with_its_number(ready):
    worker = ready()
    os.kill(worker.pids[1], signal.SIGKILL)
    failure = failure_of(worker)
    assert failure.kind == "crashed"
    assert failure.reason.startswith("rank 1 ended during 'run'; log: ")


TORCHRUN = """{said}
W1122 14:08:15.1 119 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 12000 closing signal SIGTERM
E1122 14:08:15.2 119 torch/distributed/elastic/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 12001) of binary: python
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Root Cause (first observed failure):
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


MPIEXEC = """{said}
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
mpiexec detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:
  Process name: [[4310,1],0]
  Exit code:    1
"""
KILLED = "failed (exitcode: -9) local_rank: 1 (pid: 12001) of binary: python"


@pytest.mark.parametrize(("framework", "log", "end"), [
    ("pytorch", TORCHRUN, KILLED), ("cntk", MPIEXEC, "Primary job  terminated normally, but 1 process returned")])
@pytest.mark.parametrize("said", ["python: No module named runners", ""])
def test_the_tail_of_a_log_ends_with_the_first_line_of_the_launchers_report(ranks, framework, log, end, said):
    worker = ranks(parallel=PARALLEL.model_copy(update={"failure_report": recipes.load(framework).parallel.failure_report}))
    worker.log.write_text(log.format(said=said))
    assert worker.log_tail().endswith(end)
    assert worker.log_tail().startswith(said or ("W1122" if framework == "pytorch" else end))
    worker.log.write_text("a rank\nspoke\nfour\ntimes\n")
    assert worker.log_tail() == "spoke | four | times"


def test_a_rank_that_raises_is_crashed_with_its_number_and_first_line(ready):
    failure = failure_of(ready("processes.ranks:Raises"))
    assert (failure.kind, failure.reason) == ("crashed", "rank 1: RuntimeError: the first step is broken")


def test_ranks_that_wait_for_one_that_refuses_are_ended_with_its_reason_in_seconds(ready):
    worker = ready("processes.ranks:Refuses", timeouts=Timeouts(shortage=0.5))
    with pytest.raises(Unsupported, match="no collective here"):
        worker.ask("run", limit=3600, steps=1)
    assert worker.ended
    assert processes_with(worker.token) == []


def test_a_refused_trace_lets_the_other_ranks_finish_and_train_on(ready, tmp_path):
    worker = ready(timeouts=Timeouts(shortage=60.0))  # nobody needs it
    with pytest.raises(Unsupported, match="a trace reads the activity records of a CUDA device; this task is on 'cpu'"):
        worker.ask("trace", limit=60, steps=2, out=str(tmp_path / "trace.json"))
    assert not worker.ended
    assert worker.ask("run", limit=60, steps=1)["steps"] == 1


def test_a_rank_that_hangs_is_timed_out(ready):
    failure = failure_of(ready("processes.ranks:Hang"), limit=1.0)
    assert failure.kind == "timed_out"
    assert failure.reason.startswith("ranks 0, 1: no answer to 'run' within 1 s; log: ")


def test_ranks_that_wait_for_one_out_of_memory_are_out_of_memory_in_seconds(ready):
    failure = failure_of(ready("processes.ranks:MemoryWords", timeouts=Timeouts(shortage=0.5)), limit=3600)
    assert failure.kind == "out_of_memory"
    assert failure.reason.startswith("OP_REQUIRES failed at matmul_op_impl.h:962 : RESOURCE_EXHAUSTED: OOM when allocating tensor")


def test_a_rank_that_is_stopped_is_timed_out_with_its_number_long_before_the_limit(ready):
    worker = ready("processes.ranks:Lively")
    # Ten times a second rank 0 says that it lives, so that on a busy machine too it does in three.
    worker.timeouts = Timeouts(silence=3.0)
    os.kill(worker.pids[1], signal.SIGSTOP)
    failure = failure_of(worker, limit=3600)
    assert (failure.kind, failure.reason) == ("timed_out", "rank 1: 'run': no heartbeat and no processor time for 3 s")


def test_a_launcher_that_starts_too_few_is_timed_out_with_those_that_are_missing(ranks):
    worker = ranks(count=2)
    worker.launch = Launch(PARALLEL, 4)
    failure = failure_of(worker, "hello", limit=1.0, nothing=True)
    assert failure.kind == "timed_out"
    assert "2, 3: no answer to 'hello' within 1 s" in failure.reason


def test_a_launcher_that_fails_is_crashed_with_its_exit_code(ranks):
    broken = PARALLEL.model_copy(update={"launch": ["-m", "no_such_launcher"]})
    failure = failure_of(ranks(parallel=broken), "hello", nothing=True)
    assert failure.kind == "crashed"
    assert failure.reason.startswith("the launcher ended during 'hello' with exit code 1; log: ")
    assert failure.reason.endswith("No module named no_such_launcher")


def test_a_launcher_that_is_not_installed_is_crashed_with_what_to_install(ranks):
    with pytest.raises(Failed, match="no_such_mpiexec, which starts the ranks, is not on this machine: install the packages"):
        ranks(parallel=PARALLEL.model_copy(update={"program": "no_such_mpiexec"}))


def test_orphans_of_a_rank_do_not_survive(ready):
    worker = ready("processes.ranks:Orphan")
    children = {child.pid for child in psutil.Process(worker.pids[1]).children()}
    assert children and children <= {process.pid for process in processes_with(worker.token)}
    worker.end()
    assert processes_with(worker.token) == []


def test_a_launcher_is_told_to_end_once_however_many_end_its_ranks(ranks, monkeypatch):
    worker = ranks()
    worker.ask("hello", limit=60)
    told = []
    end = worker.process.terminate
    monkeypatch.setattr(worker.process, "terminate", lambda: told.append("SIGTERM") or end())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: worker.end(), range(3)))
    assert told == ["SIGTERM"]
    assert processes_with(worker.token) == []


def test_answers_merge_by_their_meaning():
    ok = {"steps": 2}
    answers = [{**ok, "start": 1.0, "stop": 5.0, "loss": 2.0, "losses": [1.0, 2.0], "peak_memory_bytes": 7, "hashes": ["a"]},
               {**ok, "start": 0.5, "stop": 4.0, "loss": 4.0, "losses": [3.0, 4.0], "peak_memory_bytes": 9, "hashes": ["b", "c"]}]
    assert merged("run", answers) == {"steps": 2, "start": 0.5, "stop": 5.0, "loss": 3.0, "losses": [2.0, 3.0],
                                      "peak_memory_bytes": 9, "hashes": ["a", "b", "c"]}


def test_ranks_that_disagree_are_different():
    with pytest.raises(Failed) as caught:
        merged("build", [{"parameters": 861}, {"parameters": 862}])
    assert (caught.value.kind, caught.value.reason) == ("different", "rank 1 answers 'build' with parameters 862, rank 0 with 861")


def test_a_command_line_of_another_program_names_the_interpreter_and_the_number():
    launch = ["-n", "{devices}", "--log={scratch}/log", "{interpreter}", "-m"]
    parallel = Parallel(kind="ranks", program="{folder}/bin/mpiexec", launch=launch, rank="R",
                        strategies={"cpu": ["sums"]}, reasons={"cuda": "none"})
    assert Launch(parallel, 4).command("/envs/cntk/bin/python", "runners.cntk.runner", "/tmp/x") == [
        "/envs/cntk/bin/mpiexec", "-n", "4", "--log=/tmp/x/log", "/envs/cntk/bin/python", "-m", "runners", "runners.cntk.runner"]
