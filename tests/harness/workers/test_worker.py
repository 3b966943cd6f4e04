"""Every way in which a worker can go wrong becomes a typed outcome, and no process is left behind."""

import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

import networks
from harness.workers import worker as workers
from harness.workers.files import tail
from harness.workers.out_of_memory import MemoryMessages
from harness.workers.worker import TOKEN, Failed, Timeouts, Unsupported, Worker
from runners.wire import first_line
from tests.faults.processes.memory import FAILED, NO_FAILURES
from tests.ready import to_train


@pytest.fixture
def ready(tmp_path):
    """Start a worker of tests.faults.NAME, build and feed tiny_fcn, and hand it over."""
    workers = []

    def start(name, **options):
        worker = Worker(sys.executable, f"tests.faults.{name}", tmp_path / f"{name}.log", **options)
        workers.append(worker)
        return to_train(worker, tmp_path, batch=4)

    yield start
    for worker in workers:
        worker.end()
        assert left_behind(worker) == []


def test_an_interpreter_that_is_gone_is_a_failure_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(workers.scratch.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(Failed, match=r"^crashed: \S+/gone cannot be started: No such file or directory$"):
        Worker(tmp_path / "gone", "tests.faults.reference", tmp_path / "log")
    assert list((tmp_path / "temporary").iterdir()) == []


def left_behind(worker):
    return [process.pid for process in psutil.process_iter() if token_of(process) == worker.token]


def token_of(process):
    try:
        return process.environ().get(TOKEN)
    except (psutil.Error, OSError):
        return None


def failure_of(worker, limit=60.0):
    with pytest.raises(Failed) as caught:
        for _ in range(6):
            worker.ask("run", limit=limit, steps=1)
    return caught.value


def test_a_healthy_worker_answers_with_steps_times_loss_and_memory(ready):
    answer = ready("reference").ask("run", limit=60, steps=3)
    assert answer["steps"] == 3
    assert answer["stop"] > answer["start"]
    assert 0 < answer["loss"] < 10
    assert answer["peak_memory_bytes"] > 1_000_000


def test_an_exception_is_crashed_with_its_first_line(ready):
    failure = failure_of(ready("processes.wire:Raises"))
    assert (failure.kind, failure.reason) == ("crashed", "RuntimeError: the third step is broken")


@pytest.mark.parametrize(("said", "line"), [
    ("2 root error(s) found.\n  (0) x", "(0) x"),
    ("Graph execution error:\n\nDetected at node Pool defined at (most recent call last):\n  File \"a.py\", line 6, in f\n\n"
     "Default Pool only supports NHWC\n\t [[{{node Pool}}]]", "Default Pool only supports NHWC"),
    ("Graph execution error:\n\nDetected at node Pool defined at (most recent call last):\n<stack traces unavailable>\nNo room", "No room"),
    ("Graph execution error:", "Graph execution error:"), ("\n", "no message")])
def test_tensorflows_messages_open_with_what_says_nothing(said, line):
    assert first_line(ValueError(said)) == "ValueError: " + line


def test_a_worker_that_raised_still_answers(ready):
    worker = ready("processes.wire:Raises")
    failure_of(worker)
    assert worker.ask("run", limit=60, steps=1)["steps"] == 1


def test_a_segmentation_fault_is_crashed_with_the_signal_and_the_log(ready):
    failure = failure_of(ready("processes.wire:Segfault"))
    assert failure.kind == "crashed"
    assert "SIGSEGV" in failure.reason
    assert "about to read address 0" in failure.reason


def test_the_tail_of_a_log_is_its_last_words_and_no_rule(ready):
    worker = ready("reference")
    worker.log.write_text("first\nsecond\nFAILED\n\n" + 60 * "=" + "\n" + 60 * "-" + "\nRoot cause: rank 1\n" + 60 * "=" + "\n")
    assert worker.log_tail() == "second | FAILED | Root cause: rank 1"


def test_a_hang_is_timed_out(ready):
    failure = failure_of(ready("processes.wire:Hang"), limit=1.0)
    assert failure.kind == "timed_out"
    assert "no answer to 'run' within 1 s" in failure.reason


def test_a_stopped_process_is_timed_out_long_before_its_limit(ready):
    worker = ready("processes.wire:Stopped")
    # Only from here on: a busy machine may let a worker that starts wait for as long.
    worker.timeouts = Timeouts(silence=1.0)
    failure = failure_of(worker, limit=3600)
    assert failure.kind == "timed_out"
    assert "no heartbeat and no processor time" in failure.reason


def test_out_of_memory_is_its_own_kind(ready):
    failure = failure_of(ready("processes.memory:First"))
    assert failure.kind == "out_of_memory"
    assert "Tried to allocate 20.00 GiB" in failure.reason


def test_a_worker_that_waits_for_a_replica_out_of_memory_is_out_of_memory_in_seconds(ready):
    failure = failure_of(ready("processes.memory:Words", timeouts=Timeouts(shortage=0.5)), limit=3600)
    assert (failure.kind, failure.reason) == (
        "out_of_memory", "OP_REQUIRES failed at matmul_op_impl.h:962 : RESOURCE_EXHAUSTED: OOM when allocating tensor with "
        "shape[1024,2048] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc; "
        "no answer to 'run' in the 0 s after that")


@pytest.mark.parametrize(("limit", "silence", "why"), [(1.0, 60.0, "no answer to 'run' within 1 s"), (3600, 1.0, "no heartbeat")])
def test_a_worker_that_is_out_of_time_after_words_of_memory_is_out_of_memory(ready, limit, silence, why):
    worker = ready("processes.memory:Words")
    worker.timeouts = Timeouts(silence=silence)
    failure = failure_of(worker, limit)
    assert (failure.kind, why in failure.reason) == ("out_of_memory", True)


def test_words_of_memory_before_an_answer_or_of_no_failure_are_none(ready):
    worker, hours = ready("processes.memory:WordsOfNoFailure"), itertools.count(0, 3600)
    for clock in (lambda: 0.0, lambda: float(next(hours))):  # the second answer comes long after the words of the first step
        worker.clock, worker.timeouts = clock, Timeouts(silence=1e9, shortage=1.0)
        assert worker.ask("run", limit=1e9, steps=1)["steps"] == 1
    assert "not a failure" in worker.log.read_text()


@pytest.mark.parametrize(("words", "found"), [
    ("W0000 00:00:17.03   26 op_kernel.cc:1845] RESOURCE_EXHAUSTED: failed to allocate memory\n",
     "op_kernel.cc:1845] RESOURCE_EXHAUSTED: failed to allocate memory"),
    ("2019-09-09 10:08:50.7: W tensorflow/core/framework/op_kernel.cc:1622] OP_REQUIRES failed at conv_grad_input_ops.cc:415 : "
     "Resource exhausted: OOM when allocating tensor with shape[100]\n",
     "OP_REQUIRES failed at conv_grad_input_ops.cc:415 : Resource exhausted: OOM when allocating tensor with shape[100]"),
    ("W op_kernel.cc:1622] OP_REQUIRES failed at save_restore_v2_ops.cc:184 : NOT_FOUND: Key Variable not found\n", ""),
    (FAILED.strip(), ""),  # its end is still to come
    (NO_FAILURES, ""),
])
def test_words_of_memory_are_those_of_an_operation(tmp_path, words, found):
    log = tmp_path / "log"
    log.write_text(FAILED)
    shortage = MemoryMessages(log, lambda: 10.0)
    with log.open("a") as file:
        file.write(words)
    assert shortage.first() == found


def test_a_line_of_memory_is_read_when_it_is_whole_and_has_an_age(tmp_path):
    log, now = tmp_path / "log", [10.0]
    log.touch()
    shortage = MemoryMessages(log, lambda: now[0])
    for piece in (FAILED[:100], FAILED[100:]):
        assert shortage.first() == ""
        with log.open("a") as file:
            file.write(piece)
    assert (shortage.first(), shortage.first(age=5.0)) == (FAILED.partition("] ")[2].strip(), "")
    now[0] = 15.0
    assert shortage.first(age=5.0) == shortage.first()


def test_an_orphan_that_keeps_the_pipe_neither_hangs_the_driver_nor_survives(ready):
    worker = ready("processes.wire:Orphan")
    failure = failure_of(worker)
    assert failure.kind == "crashed"
    assert "exit code 3" in failure.reason
    assert left_behind(worker) != []
    worker.end()
    assert left_behind(worker) == []


def test_a_forged_answer_on_stdout_goes_to_the_log_and_is_not_believed(ready):
    worker = ready("processes.wire:Forged")
    answer = worker.ask("run", limit=60, steps=1)
    assert answer["loss"] > 0
    assert answer["start"] > 0
    assert worker.log.read_text().count('"stop": 0.000001') == 2


def test_noise_on_both_streams_does_not_block(ready):
    worker = ready("processes.wire:Noise")
    assert worker.ask("run", limit=60, steps=2)["steps"] == 2
    assert worker.log.stat().st_size > 2 * 2 * 200_000


def test_a_line_that_is_not_json_is_a_protocol_failure(ready):
    failure = failure_of(ready("processes.wire:Garbage"))
    assert failure.kind == "protocol"
    assert "I am not JSON" in failure.reason


def test_a_runner_that_cannot_be_imported_is_crashed_with_the_reason(tmp_path):
    with Worker(sys.executable, "tests.faults.import_fails", tmp_path / "log") as worker, pytest.raises(Failed) as caught:
        worker.ask("hello", limit=60)
    assert caught.value.kind == "crashed"
    assert "libcublas.so.12: cannot open shared object file" in caught.value.reason


def test_an_unknown_command_is_unsupported(ready):
    with pytest.raises(Unsupported, match="no command 'levitate'"):
        ready("reference").ask("levitate", limit=60)


def test_a_network_of_another_shape_is_different_with_the_layers_name(tmp_path):
    network = networks.get("tiny_fcn").to_json()
    network["layers"][0]["output_shape"] = [17]
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "log") as worker:
        worker.ask("hello", limit=60)
        with pytest.raises(Failed) as caught:
            worker.ask("build", limit=60, network=network, batch=4)
    assert caught.value.kind == "different"
    assert "dense1" in caught.value.reason


def test_a_worker_is_pinned_to_its_cores_before_its_framework_loads(tmp_path):
    core = min(os.sched_getaffinity(0))
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "log", cores=str(core)) as worker:
        pid = worker.ask("hello", limit=60)["pid"]
        assert psutil.Process(pid).cpu_affinity() == [core]


def test_workers_keep_what_they_compile_for_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "log") as worker:
        worker.ask("hello", limit=60)
    assert list((tmp_path / "compiled").rglob("protocol.*.pyc"))


def test_a_worker_ends_when_its_driver_is_gone(ready):
    worker = ready("reference")
    worker.process.stdin.close()
    worker.process.wait(timeout=300)
    assert worker.process.returncode == 0


def test_a_process_that_cannot_be_killed_does_not_hang_the_driver(ready, monkeypatch):
    class Stuck:
        """A process within a call of a broken driver."""

        pid, kills = 2**22 + 1, 0

        def kill(self):
            self.kills += 1

        def is_running(self):
            return True

        def wait(self, timeout=None):
            time.sleep(timeout or 0)
            raise psutil.TimeoutExpired(timeout)

    run, stuck = ready("reference"), Stuck()
    ticks = itertools.count(0, 0.05)
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(workers, "KILLING_SECONDS", 0.2)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(workers, "processes_with", lambda token: [stuck])
    monkeypatch.setattr(run.process, "wait", lambda timeout: (_ for _ in ()).throw(subprocess.TimeoutExpired("worker", timeout)))
    run.end()
    assert run.ended and 1 <= stuck.kills <= 10
    assert f"cannot be ended, so probably within a call of a broken driver: process {stuck.pid}" in run.log.read_text()
    monkeypatch.undo()
    run.process.wait(timeout=60)


def test_a_worker_that_is_killed_in_silence_has_an_empty_log(tmp_path):
    worker = Worker(sys.executable, "tests.faults.reference", tmp_path / "log")
    try:
        worker.ask("hello", limit=60)
        worker.log.write_text("")
        worker.process.kill()
        with pytest.raises(Failed, match=r"^(crashed: )?the worker ended during 'hello' with signal SIGKILL; log: empty$"):
            worker.ask("hello", limit=60)
    finally:
        worker.end()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: None])
def test_a_log_that_a_worker_replaced_is_neither_waited_for_nor_read(tmp_path, make):
    worker = Worker(sys.executable, "tests.faults.reference", tmp_path / "log")
    try:
        worker.ask("hello", limit=60)
        worker.log.unlink()
        make(worker.log)
        assert (worker.log_tail(), MemoryMessages(worker.log, lambda: 0.0).first()) == ("", "")
        with pytest.raises(Unsupported, match="no command"):
            worker.ask("levitate", limit=60)
    finally:
        worker.end()


def test_the_tail_of_a_log_of_a_terabyte_is_read_alone(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last\x1b[2J words\n")
    assert tail(log, 30).endswith(b"words\n") and len(tail(log, 30)) == 30
    assert MemoryMessages(log, lambda: 0.0).first() == ""
    assert Failed("crashed", tail(log, 19).decode()).reason == "the last [2J words "
