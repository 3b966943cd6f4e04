"""Processes that get ready several at a time: their order and kept workers."""

import signal
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby

import psutil
import pytest

from analysis.audit import consistency
from analysis.proof import timer
from harness.campaign.events import Event
from harness.plan.planner import Trial
from harness.proof import questions
from harness.workers import launch
from harness.workers.pool import WorkerPool, leaves_traces
from harness.workers.worker import Failed, Timeouts, Worker
from tests.harness.campaigns import run, table
from tests.slow import slow_but


@pytest.fixture(autouse=True)
def times_are_believed(monkeypatch):
    """On a busy machine windows this short look badly timed; tests/analysis guards that check."""
    monkeypatch.setattr(timer, "MINIMUM_PROCESSES", 99)


@pytest.mark.parametrize(("jobs", "turns"), [(1, "get ready, time, " * 4), (2, "get ready, time, " * 2)])
def test_processes_get_ready_in_groups_and_none_does_while_one_is_timed(tmp_path, stand_in, jobs, turns):
    stand_in(one="reference")
    seen = []
    done = run(tmp_path, frameworks="one", processes=4, prepare_jobs=jobs, watch=seen.append)
    # A process is proven once more at the end of its time.
    began = [[event.process for event in seen[:place] if event.phase == "warm-up"]
             for place in range(1, len(seen) + 1)]
    phases = ["time, " if event.process in timed else "get ready, "
              for event, timed in zip(seen, began, strict=True)]
    assert "".join(phase for phase, _ in groupby(phases)) == turns
    assert (done.processes["order"].tolist(), set(done.processes["status"])) == ([0, 1, 2, 3], {"ok"})
    began = datetime.fromisoformat(done.meta["started"])
    starts = [(began + timedelta(seconds=10 * (number // jobs))).isoformat() for number in range(4)]  # a group at a time
    ended = {**done.meta, "finished": (began + timedelta(seconds=99)).isoformat()}
    for moved, faults in ((starts, 0), (starts[::-1], 4 - jobs)):
        told = replace(done, meta=ended, processes=done.processes.assign(started=moved))
        assert [finding.column for finding in consistency.check(told) if finding.file == "processes.csv"] == ["started"] * faults


def test_a_campaign_that_was_resumed_with_more_at_a_time_passes_its_audit(tmp_path, stand_in):
    stand_in(one="reference")

    def stop(event: Event) -> None:
        if event.process:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", processes=4, watch=stop)
    done = run(tmp_path, resume=True, frameworks="one", processes=4, prepare_jobs=3)
    began = datetime.fromisoformat(done.meta["started"])
    starts = [(began + timedelta(seconds=seconds)).isoformat() for seconds in (0, 20, 20, 10)]  # of the last three any may be first
    told = replace(done, meta={**done.meta, "finished": (began + timedelta(seconds=99)).isoformat()},
                   processes=done.processes.assign(started=starts))
    assert [finding for finding in consistency.check(told) if finding.file == "processes.csv"] == []


@pytest.mark.parametrize(("status", "faults"), [("unsupported", []), ("ok", ["started"])])
def test_an_unsupported_row_takes_no_place_among_those_that_get_ready(tmp_path, stand_in, status, faults):
    stand_in(one="reference")
    done = run(tmp_path, frameworks="one", processes=4, prepare_jobs=2)
    began = datetime.fromisoformat(done.meta["started"])
    # The second row was written after the third had begun, whose group began with the first.
    starts = [(began + timedelta(seconds=seconds)).isoformat() for seconds in (0, 60, 0, 30)]
    statuses = ["ok", status, "ok", "ok"]
    told = replace(done, meta={**done.meta, "finished": (began + timedelta(seconds=99)).isoformat()},
                   processes=done.processes.assign(started=starts, status=statuses),
                   windows=done.windows[done.windows["process"] != 1])
    assert [finding.column for finding in consistency._one_after_another(told)] == faults


def test_a_process_that_fails_as_it_gets_ready_costs_the_others_nothing(tmp_path, stand_in):
    stand_in(one="reference", two="processes.wire:Refuses", three="import_fails")
    done = run(tmp_path, frameworks=["one", "two", "three"], processes=1, prepare_jobs=3)
    statuses = {row.trial.partition("-")[0]: row.status for row in done.processes.itertuples()}
    assert statuses == {"one": "ok", "two": "unsupported", "three": "failed"}


@pytest.mark.parametrize("jobs", slow_but([3], [1, 3]))
def test_of_a_trial_that_was_refused_hung_or_failed_its_proof_no_further_process_is_started(tmp_path, stand_in, monkeypatch, jobs):
    hangs = {"tests.faults.processes.wire:HangsWhenTimed": "run", "tests.faults.processes.wire:Hang": "train"}

    class Impatient(Worker):
        """Waits two seconds for a command that hangs, and no less than a campaign for the others."""

        def __init__(self, interpreter, module, *others, **options):
            self.module = module
            super().__init__(interpreter, module, *others, **options)

        def ask(self, command, limit, **arguments):
            return super().ask(command, 2.0 if hangs.get(self.module) == command else limit, **arguments)

    monkeypatch.setattr(launch, "Worker", Impatient)
    stand_in(good="reference", refused="processes.wire:Refuses", hung="processes.wire:HangsWhenTimed", hung_in_proof="processes.wire:Hang",
             crashed="import_fails")
    done = run(tmp_path, frameworks=["good", "refused", "hung", "hung_in_proof", "crashed"], processes=4, prepare_jobs=jobs,
               keep_workers=jobs > 1)
    processes = done.processes.assign(framework=done.processes["trial"].str.partition("-")[0]).sort_values("process")
    reasons = processes.groupby("framework")["reason"].agg(list)
    assert processes.groupby("framework")["status"].agg(set).to_dict() == {
        "good": {"ok"}, "refused": {"unsupported"}, "hung": {"failed"}, "hung_in_proof": {"failed"},
        "crashed": {"failed"}}
    assert set(reasons["refused"]) == {"this wheel needs AVX-512 [see the release notes]"} and len(reasons["refused"]) == 4
    for name, why in (("hung", "timed_out: no answer to 'run' "), ("hung_in_proof", "timed_out: no answer to 'train' "),
                      ("crashed", "crashed: ImportError: libcublas.so.12: ")):
        first, *others = reasons[name]
        assert first.startswith(why)
        started = [reason for reason in others if reason == first]  # got ready beside the first one, where several do
        skipped = [reason for reason in others if reason != first]
        assert len(started) <= jobs - 1 and len(skipped) >= 4 - jobs
        assert all(reason.startswith(why.replace(": ", ": not started, because process 0 failed: ", 1)) for reason in skipped)
    assert len(list((tmp_path / "logs").glob("refused-*-[0-9].log"))) <= jobs
    assert [finding for finding in consistency.check(done) if finding.file == "processes.csv"] == []
    assert table(tmp_path)["hung tiny_fcn"]["reason"].startswith("timed_out: no answer to 'run' within 2 s")


def test_a_kept_worker_serves_other_trials_and_never_one_twice(tmp_path, stand_in):
    stand_in(one="reference", two="reference")
    networks = ["tiny_fcn", "tiny_lstm"]
    before = set(psutil.Process().children(recursive=True))
    done = run(tmp_path, frameworks=["one", "two"], networks=networks, batches=4, processes=3, prepare_jobs=4, keep_workers=True)
    rows = done.processes
    assert set(rows["status"]) == {"ok"}
    assert (rows.groupby("trial")["log"].nunique() == 3).all()  # a worker writes one log
    assert 6 <= rows["log"].nunique() < len(rows) == 12
    served = rows.groupby("log")["trial"].agg(lambda names: {name.partition("-")[0] for name in names})
    assert set(map(len, served)) == {1}  # of one framework
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.parametrize("number", slow_but([signal.SIGSTOP], [signal.SIGKILL, signal.SIGSTOP]))
def test_a_kept_worker_that_died_or_hung_while_it_rested_costs_no_trial(tmp_path, stand_in, monkeypatch, number):
    stand_in(one="reference")
    put, struck = WorkerPool.put, []

    def strike(pool: WorkerPool, worker: Worker, trial: Trial) -> None:
        worker.timeouts = Timeouts(silence=2.0)  # of no other worker, which a busy machine may let wait
        worker.process.send_signal(number)
        struck.append(worker)
        put(pool, worker, trial)

    monkeypatch.setattr(WorkerPool, "put", strike)
    before = set(psutil.Process().children(recursive=True))
    done = run(tmp_path, frameworks="one", networks=["tiny_fcn", "tiny_lstm"], batches=4, processes=2, keep_workers=True)
    assert (set(done.processes["status"]), done.processes["log"].nunique()) == ({"ok"}, 4)  # each has a worker of its own
    assert struck and all(worker.ended for worker in struck)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_where_a_fresh_worker_dies_too_its_process_fails(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    put = WorkerPool.put

    def kill_all(pool: WorkerPool, worker: Worker, trial: Trial) -> None:
        worker.process.kill()
        monkeypatch.setattr(launch, "Worker", lambda interpreter, module, *others, **settings: Worker(
            interpreter, "tests.faults.import_fails", *others, **settings))
        put(pool, worker, trial)

    monkeypatch.setattr(WorkerPool, "put", kill_all)
    done = run(tmp_path, frameworks="one", networks=["tiny_dropout", "tiny_fcn"], batches=4, processes=1, keep_workers=True)
    first, second = done.processes.sort_values("order").to_dict("records")
    assert (first["status"], second["status"], "tiny_dropout" in second["trial"]) == ("ok", "failed", True)
    assert second["reason"].startswith("crashed: ImportError: libcublas.so.12")


def test_a_worker_serves_one_side_of_a_comparison():
    one = Trial("pytorch", "2.13.0", "fcn5", 64, 1, "cpu", 1, "fp32", "stock", "device", 0.05, 1, 1, False, 3, side="A")
    pool = WorkerPool()
    pool.put("a worker", one)
    assert pool.take(replace(one, side="B")) is None
    assert pool.take(replace(one, side="A", network="fcn8s")) == "a worker"


def test_idle_workers_stay_as_long_as_a_process_to_come_can_use_them():
    fcn5 = Trial("pytorch", "2.13.0", "fcn5", 64, 1, "cpu", 1, "fp32", "stock", "device", 0.05, 1, 1, False, 3)
    fcn8s, of_another = replace(fcn5, network="fcn8s"), replace(fcn5, framework="jax")
    pool = WorkerPool()
    for worker, trial in (("has served fcn5", fcn5), ("of jax", of_another), ("has served both", fcn5), ("has served both", fcn8s)):
        pool.put(worker, trial)
    pool.idle.remove("has served both")
    assert pool.clear([fcn5, fcn8s]) == ["of jax", "has served both"]
    assert pool.clear([fcn5]) == ["has served fcn5"] and pool.clear() == []


@pytest.mark.parametrize(("kind", "devices", "strategy", "traces"), [
    ("cuda", 2, "bf16_compress", True), ("cuda", 2, "ddp", True), ("cuda", 4, "nccl", True),
    ("cuda", 2, "ring", False), ("cuda", 2, "one_bit", False), ("cuda", 1, "", False), ("cpu", 2, "bf16_compress", False),
])
def test_what_aggregates_beside_the_backward_pass_leaves_traces_in_a_worker_of_gpus(kind, devices, strategy, traces):
    trial = Trial("pytorch", "2.11.0", "alexnet", 128, devices, kind, 1, "fp32", "stock", "device", 0.05, 1, 1, False, 3,
                  strategy=strategy)
    assert leaves_traces(trial) is traces


def test_a_worker_with_traces_of_a_trial_is_not_kept(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    monkeypatch.setattr("harness.campaign.pipeline.leaves_traces", lambda trial: trial.network == "tiny_fcn")
    done = run(tmp_path, frameworks="one", networks=["tiny_fcn", "tiny_lstm"], batches=4, processes=3, keep_workers=True)
    in_order = done.processes.sort_values("order").groupby("log", sort=False)["trial"].agg(list)
    assert all("tiny_lstm" in name for names in in_order for name in names[:-1])  # what left traces was a worker's last
    assert len(in_order) < 6


def test_a_reference_that_failed_before_all_processes_is_asked_again(tmp_path, stand_in,
                                                                     monkeypatch):
    stand_in(one="reference", two="reference")
    failures = iter(range(1))

    class FailsOnce(Worker):
        def ask(self, command, limit, **arguments):
            if command == "answer" and next(failures, None) is not None:
                raise Failed("timed_out", "no answer to 'answer' within 3 s")
            return super().ask(command, limit, **arguments)

    monkeypatch.setattr(questions, "Worker", FailsOnce)
    done = run(tmp_path, frameworks=["one", "two"], processes=2, check_jobs=2)
    assert (next(failures, None), set(done.processes["status"]), len(done.processes)) == (None, {"ok"}, 4)
    assert {row["verified"] for row in table(tmp_path).values()} == {"yes"}


def test_recordings_get_ready_side_by_side_after_their_group(tmp_path, stand_in):
    stand_in(one="reference", two="reference")
    seen: list[Event] = []
    done = run(tmp_path, frameworks=["one", "two"], processes=2, prepare_jobs=2, profile=True,
               watch=seen.append)
    phases = [phase for phase, _ in groupby(event.phase for event in seen)]
    # Once, behind the first round's last proof, and before the second round.
    assert phases.count("tracing") == 1
    assert phases.index("tracing") < len(phases) - 1 - phases[::-1].index("building")
    assert sorted(set(done.operators["trial"])) == sorted(set(done.processes["trial"]))


def test_a_kept_worker_rests_and_one_that_cannot_is_not_kept(tmp_path, stand_in):
    networks = ["tiny_fcn", "tiny_lstm"]
    stand_in(one="processes.memory:OfOne", two="processes.wire:Restless")
    done = run(tmp_path / "kept", frameworks="one", networks=networks, batches=4, processes=3, keep_workers=True)
    assert (set(done.processes["status"]), "shortages" in done.meta) == ({"ok"}, False)  # no worker holds the memory meanwhile
    assert done.processes["log"].nunique() < 6
    done = run(tmp_path / "ended", frameworks="two", networks=networks, batches=4, processes=3, keep_workers=True)
    assert (set(done.processes["status"]), done.processes["log"].nunique()) == ({"ok"}, 6)


def test_what_waits_for_its_turn_ends_with_a_campaign_that_is_stopped(tmp_path, stand_in):
    stand_in(one="reference")

    def stop(event: Event) -> None:
        if event.phase == "timing":
            raise KeyboardInterrupt

    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", processes=3, prepare_jobs=3, watch=stop)
    assert set(psutil.Process().children(recursive=True)) <= before
