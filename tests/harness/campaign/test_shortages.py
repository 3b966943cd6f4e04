"""Processes that run out of memory beside others: they run again alone, and later groups are smaller."""

from functools import partial

import psutil
import pytest

from analysis.audit import consistency
from analysis.display import provenance
from analysis.proof import timer
from harness.campaign.events import Event
from harness.workers import launch
from harness.workers.worker import Timeouts, Worker
from tests.harness.campaigns import run, table
from tests.slow import slow_but


@pytest.fixture(autouse=True)
def times_are_believed(monkeypatch):
    """On a busy machine windows this short look badly timed; tests/analysis guards that check."""
    monkeypatch.setattr(timer, "MINIMUM_PROCESSES", 99)


@pytest.mark.parametrize("limited", slow_but(["processes.memory:OfOneInTraining"], ["processes.memory:OfOne", "processes.memory:OfOneInTraining"]))
def test_a_process_out_of_memory_beside_others_runs_again_alone_and_nothing_is_lost(tmp_path, stand_in, limited):
    stand_in(one=limited, two="reference")
    before = set(psutil.Process().children(recursive=True))
    told: list[str] = []
    done = run(tmp_path, frameworks=["one", "two"], processes=4, prepare_jobs=4, keep_workers=True, note=told.append)
    rows = done.processes
    assert (rows["order"].tolist(), set(rows["status"]), set(rows["reason"])) == (list(range(8)), {"ok"}, {""})
    assert [finding for finding in consistency.check(done) if finding.file != "campaign.json"] == []
    timed = done.windows[done.windows["window"] >= 0]
    assert set(timed.groupby(["trial", "process"]).size()) == {2} and len(timed) == 16
    assert {row["verified"] for row in table(tmp_path).values()} == {"yes"}
    assert told and told == done.meta["shortages"]
    shown = dict(provenance.facts(done.meta))["memory ran short"]
    assert shown.startswith(told[0].partition(" (")[0]) and shown.endswith(told[-1].rpartition("from now on ")[2] + ".")
    assert "MemoryError" in told[0] and "MemoryError" not in shown
    assert rows["log"].nunique() == len(rows)  # no worker is kept after a shortage
    assert not any("MemoryError" in (tmp_path / log).read_text() for log in rows["log"])
    assert set(psutil.Process().children(recursive=True)) <= before


def test_after_each_shortage_half_as_many_get_ready(tmp_path, stand_in):
    stand_in(one="processes.memory:OfOneInTraining")
    seen: list[Event] = []
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=7, prepare_jobs=4, watch=seen.append, note=told.append)
    assert (done.processes["process"].tolist(), set(done.processes["status"])) == (list(range(7)), {"ok"})
    starts = [event.process for event in seen if event.phase == "starting"]
    assert (sorted(starts[:4]), starts[4], sorted(starts[5:7]), starts[7:]) == ([0, 1, 2, 3], 0, [1, 2], [1, 2, 3, 4, 5, 6])
    trial = done.processes["trial"][0]
    assert told == [f"{trial} process {process} failed beside other workers (out_of_memory: MemoryError: another worker holds the "
                    f"memory): it runs again alone; from now on processes get ready {jobs} at a time and no worker is kept"
                    for process, jobs in ((0, 2), (1, 1))]


def test_no_more_get_ready_than_a_gpu_holds(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    monkeypatch.setattr("harness.plan.memory.of_smallest_gpu", lambda machine: 8.0)
    monkeypatch.setattr("harness.plan.memory._expected", lambda trial: 3.0)
    seen: list[Event] = []
    done = run(tmp_path, frameworks="one", processes=5, prepare_jobs=4, watch=seen.append)
    assert set(done.processes["status"]) == {"ok"}
    said = [event.process for event in seen if event.phase in ("starting", "timing")]
    # Two windows each.
    assert [sorted(said[:2]), said[2:6], sorted(said[6:8]), said[8:]] == [[0, 1], [0, 0, 1, 1], [2, 3], [2, 2, 3, 3, 4, 4, 4]]


def test_after_a_shortage_of_a_gpu_groups_that_are_expected_to_hold_less_get_ready(tmp_path, stand_in, monkeypatch):
    stand_in(one="processes.memory:OfOneInTraining")
    monkeypatch.setattr("harness.plan.memory.of_smallest_gpu", lambda machine: 16.0)
    monkeypatch.setattr("harness.plan.memory._expected", lambda trial: 3.0)
    seen: list[Event] = []
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=7, prepare_jobs=7, watch=seen.append, note=told.append)
    assert (done.processes["process"].tolist(), set(done.processes["status"])) == (list(range(7)), {"ok"})
    starts = [event.process for event in seen if event.phase == "starting"]
    # Groups of 4, 3, 2 and 1; the first of each that ran short runs again alone.
    assert [sorted(starts[:4]), starts[4], sorted(starts[5:8]), starts[8], sorted(starts[9:11]), starts[11:]] == [
        [0, 1, 2, 3], 0, [1, 2, 3], 1, [2, 3], [2, 3, 4, 5, 6]]
    assert len(told) == 3 and all("from now on fewer processes get ready at a time" in text for text in told)


def test_after_a_shortage_as_many_get_ready_as_had_room(tmp_path, stand_in):
    stand_in(one="processes.memory:InFirstProof")
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=4, prepare_jobs=4, note=told.append)
    assert set(done.processes["status"]) == {"ok"} and len(done.processes) == 4
    assert len(told) == 1 and "from now on processes get ready 3 at a time" in told[0]


def test_a_failure_of_nccl_beside_others_counts_as_a_shortage_of_memory(tmp_path, stand_in):
    stand_in(one="processes.memory:OfOneForNccl")
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=2, prepare_jobs=2, note=told.append)
    assert (done.processes["process"].tolist(), set(done.processes["status"])) == ([0, 1], {"ok"})
    assert len(told) == 1 and "NCCL: unhandled cuda error" in told[0] and "it runs again alone" in told[0]


def test_a_proof_that_ran_out_of_memory_beside_others_is_made_again(tmp_path, stand_in):
    stand_in(one="processes.memory:InFirstProof", two="reference")
    told: list[str] = []
    run(tmp_path, frameworks=["one", "two"], processes=1, prepare_jobs=2, note=told.append)
    assert {(row["status"], row["verified"]) for row in table(tmp_path).values()} == {("ok", "yes")}
    assert len(told) == 1 and "(out_of_memory: MemoryError: there is none at first)" in told[0]


def test_a_process_that_only_writes_of_memory_beside_others_runs_again_alone(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(launch, "Worker", partial(Worker, timeouts=Timeouts(shortage=0.5)))
    stand_in(one="processes.memory:OfOneInWords")
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=2, prepare_jobs=2, note=told.append)
    assert (done.processes["order"].tolist(), set(done.processes["status"])) == ([0, 1], {"ok"})
    assert len(told) == 1 and "process 0 failed beside other workers (out_of_memory: OP_REQUIRES failed at matmul" in told[0]


def test_a_process_of_which_a_part_is_out_of_memory_beside_others_runs_again_alone(tmp_path, stand_in):
    stand_in(one="processes.memory:OfOneInParts")
    told: list[str] = []
    done = run(tmp_path, frameworks="one", processes=2, prepare_jobs=2, phases=True, note=told.append)
    assert (done.processes["order"].tolist(), set(done.processes["status"])) == ([0, 1], {"ok"})
    found = done.phases.groupby(["process", "variant"])["reason"].agg(list)
    for process in (0, 1):
        assert (found[process, "F"], found[process, "FB"]) == (["", ""], ["", ""])
    assert told == done.meta["shortages"] == [
        f"{done.processes['trial'][0]} process 0, part FB, failed beside other workers (out_of_memory: MemoryError: another worker "
        "holds the memory): it runs again alone; from now on processes get ready 1 at a time and no worker is kept"]
    assert [finding for finding in consistency.check(done) if finding.file != "campaign.json"] == []


def test_a_profile_out_of_memory_beside_others_is_made_again_alone(tmp_path, stand_in):
    stand_in(one="processes.memory:OfOneProfile", two="processes.memory:OfOneProfile")
    told: list[str] = []
    done = run(tmp_path, frameworks=["one", "two"], processes=1, prepare_jobs=2, profile=True,
               note=told.append)
    assert (done.processes["order"].tolist(), set(done.processes["status"])) == ([0, 1], {"ok"})
    assert done.operators["class"].tolist() == ["matrix product", "wall", "busy", "idle"] * 2
    assert told == done.meta["shortages"] == [
        f"{done.processes['trial'][0]} profile failed beside other workers (out_of_memory: "
        "MemoryError: another worker holds the memory): it runs again alone; from now on processes "
        "get ready 1 at a time and no worker is kept"]
    assert [finding for finding in consistency.check(done) if finding.file != "campaign.json"] == []


@pytest.mark.parametrize(("frameworks", "shortages"), [(["one"], 0), (["one", "two"], 1)])
def test_a_profile_out_of_memory_alone_is_its_reason(tmp_path, stand_in, frameworks, shortages):
    stand_in(one="processes.memory:NoProfile", two="processes.memory:NoProfile")
    told: list[str] = []
    done = run(tmp_path, frameworks=frameworks, processes=1, prepare_jobs=2, profile=True,
               note=told.append)
    assert set(done.processes["status"]) == {"ok"}
    assert done.operators[["class", "reason"]].values.tolist() == [
        ["no trace", "out_of_memory: MemoryError: a profile of 20 GiB"]] * len(frameworks)
    assert len(told) == shortages


def test_a_process_out_of_memory_alone_is_one_failed_row(tmp_path, stand_in):
    stand_in(one="processes.memory:First", two="reference")
    seen: list[Event] = []
    told: list[str] = []
    done = run(tmp_path, frameworks=["one", "two"], processes=2, prepare_jobs=4, watch=seen.append, note=told.append)
    rows = done.processes
    assert rows["order"].tolist() == list(range(4))
    assert {row.trial.partition("-")[0]: row.status for row in rows.itertuples()} == {"one": "failed", "two": "ok"}
    failed = rows[rows["status"] == "failed"]
    assert failed["reason"].tolist() == [f"out_of_memory: {said}RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB"
                                         for said in ("", "not started, because process 0 failed: ")]
    assert [event.phase for event in seen if event.trial.framework == "one" and not event.process].count("proving") > 1
    alone = run(tmp_path / "alone", frameworks="one", processes=2, watch=seen.append, note=told.append)
    assert (set(alone.processes["status"]), "shortages" in alone.meta) == ({"failed"}, False)
