"""Who stops a campaign ends every worker of every thread, also one that is only being started."""

import _thread
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.campaign import campaign
from harness.campaign.events import Event, Listener
from harness.plan.suite import Suite
from harness.proof import questions
from harness.workers.alive import LiveWorkers, results
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, Worker, processes_with
from tests.harness.campaigns import Heard
from tests.parallel import PARALLEL


def test_a_worker_that_starts_while_all_are_stopped_ends_at_once(tmp_path):
    live = LiveWorkers()
    early, late = (Worker(sys.executable, "tests.faults.reference", tmp_path / "log") for _ in range(2))
    live.add(early)
    live.stop()
    assert (early.ended, late.ended) == (True, False)
    with pytest.raises(Failed, match="crashed: stopped with its campaign"):
        live.add(late)
    assert processes_with(early.token) == processes_with(late.token) == []


def test_ranks_are_ended_by_their_launcher(tmp_path, monkeypatch):
    ranks = Ranks(Launch(PARALLEL, 2), sys.executable, "tests.faults.processes.ranks", tmp_path / "log")
    live, told, end = LiveWorkers(), [], ranks.process.terminate
    monkeypatch.setattr(ranks.process, "terminate", lambda: told.append("SIGTERM") or end())
    live.add(ranks)
    live.stop()
    assert (told, processes_with(ranks.token)) == (["SIGTERM"], [])


def test_a_worker_that_is_forgotten_is_left_to_who_ends_it(tmp_path):
    live = LiveWorkers()
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "log") as worker:
        live.add(worker)
        live.discard([worker])
        live.stop()
        assert not worker.ended


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt here, although a shell lets what runs in its background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("runner", "devices"), [("processes.wire:Hang", 1), ("processes.ranks:Hang", 2)])
def test_an_interrupt_ends_the_proofs_of_processes_that_get_ready(tmp_path, stand_in, workers_in, runner, devices):
    stand_in(one=runner, two=runner)
    suite = Suite.model_validate({
        "networks": "tiny_fcn", "batches": 4, "frameworks": ["one", "two"], "device": "cpu", "threads": 1, "peaks": False,
        "devices": devices, "processes": 1, "prepare_jobs": 2, "telemetry": False, "limits": {"check": 900}})
    proving = set()

    def interrupt(event: Event) -> None:
        proving.add(event.trial.framework if event.phase == "proving" else "")
        if event.phase == "proving" and {"one", "two"} <= proving:
            # A little later: while a pool starts a thread it knows nothing of it yet, and could not wait for it.
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        campaign.run(campaign.prepare(suite, "suite.yaml"), tmp_path, Heard(interrupt))
    assert time.monotonic() - began < 450  # a proof alone would have hung for 900
    assert workers_in(tmp_path) == []


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_reference_that_a_campaign_waits_for(tmp_path, stand_in, workers_in, monkeypatch):
    stand_in(one="reference")
    monkeypatch.setattr(questions, "ANSWERS", "tests.faults.processes.wire:HangsInBuild")
    suite = Suite.model_validate({
        "networks": "tiny_fcn", "batches": 4, "frameworks": ["one"], "device": "cpu", "threads": 1, "peaks": False, "processes": 1,
        "check_jobs": 2, "telemetry": False, "limits": {"check": 900}})
    started, began = questions.Worker, time.monotonic()

    def worker(interpreter, module, *arguments):
        if module == "tests.faults.processes.wire:HangsInBuild":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return started(interpreter, module, *arguments)

    monkeypatch.setattr(questions, "Worker", worker)
    with pytest.raises(KeyboardInterrupt):
        campaign.run(campaign.prepare(suite, "suite.yaml"), tmp_path, Listener())
    assert time.monotonic() - began < 450  # the reference alone would have hung for 900
    assert workers_in(tmp_path) == []


def test_results_come_in_their_order_and_a_failure_comes_through():
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(lambda seconds: time.sleep(seconds) or seconds, seconds) for seconds in (0.6, 0.0, 0.1)]
        assert list(results(futures)) == [0.6, 0.0, 0.1]
        with pytest.raises(TimeoutError, match="its own"):
            list(results([pool.submit(fail)]))


def fail():
    raise TimeoutError("its own")


@pytest.mark.usefixtures("interruptible")
def test_a_wait_for_results_hears_an_interrupt_that_woke_nobody():
    done, began = threading.Event(), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(done.wait, 300)
        threading.Timer(0.2, _thread.interrupt_main).start()  # sets the flag and wakes nobody
        with pytest.raises(KeyboardInterrupt):
            list(results([future]))
        done.set()
    assert time.monotonic() - began < 150
