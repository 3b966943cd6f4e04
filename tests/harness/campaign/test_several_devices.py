"""Campaigns on several devices: what they record, and what a fault of one rank costs."""

import csv
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import report
from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.environments import recipes
from harness.plan.suite import Suite
from harness.workers import launch
from harness.workers.ranks import Ranks
from harness.workers.worker import Timeouts
from tests.slow import slow

SMALL = {"networks": {"tiny_fcn": {"batches": 4}}, "device": "cpu", "threads": 1, "processes": 1, "windows": 2,
         "window_seconds": 0.01, "peaks": False, "data": "host", "telemetry": False}


def run(folder: Path, resume: bool = False, **suite: Any) -> Campaign:
    prepared = campaign.prepare(Suite.model_validate({**SMALL, **suite}), "suite.yaml")
    campaign.run(prepared, folder, Listener(), resume)
    return reader.read(folder)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_one_device_and_two_with_the_same_global_batch_are_peers_and_agree(tmp_path, stand_in):
    stand_in(one="processes.ranks")
    done = run(tmp_path, frameworks="one", devices=[1, 2], scaling=["strong", "weak"])
    found = rows(tmp_path)
    assert [(row["devices"], row["batch"], row["global_batch"], row["strategy"], row["verified"]) for row in found] == [
        ("1", "4", "4", "", "yes"), ("2", "2", "4", "sums", "yes"), ("2", "4", "8", "sums", "yes")]
    one, other = found[0]["trial"], found[1]["trial"]
    losses = [done.windows.loc[done.windows["trial"] == trial, "loss"].to_numpy()[:8] for trial in (one, other)]
    assert np.allclose(*losses, rtol=1e-6)
    for row in found:
        assert float(row["samples_per_second"]) == pytest.approx(int(row["global_batch"]) / float(row["step_seconds"]))


def test_more_devices_than_cores_share_them_and_the_row_says_so(tmp_path, stand_in, monkeypatch):
    stand_in(one="processes.ranks")
    prepared = campaign.prepare(Suite.model_validate({**SMALL, "frameworks": "one", "devices": 2}), "suite.yaml")
    prepared.machine["cpu"]["allowed"] = 1
    campaign.run(prepared, tmp_path, Listener())
    assert "its 2 devices share 1 cores" in rows(tmp_path)[0]["reason"]


def test_batch_norm_of_several_devices_is_said_to_be_their_own(tmp_path, stand_in):
    stand_in(one="processes.ranks")
    run(tmp_path, frameworks="one", devices=2, networks={"tiny_resnet": {"batches": 4}})
    (row,) = rows(tmp_path)
    assert row["verified"] == "yes"
    assert "each device normalises its own samples: losses compared with rows of as many devices only" in row["reason"]


def test_a_killed_rank_is_one_row_and_leaves_nothing_behind(tmp_path, stand_in, workers_in):
    stand_in(killed="processes.ranks:Killed", good="processes.ranks")
    run(tmp_path, frameworks=["killed", "good"], devices=2)
    bad, good = rows(tmp_path)
    assert (bad["status"], good["status"]) == ("failed", "ok")
    assert bad["reason"].startswith("crashed: rank 1 ended during 'run'; log: ")
    assert workers_in(tmp_path) == []


@pytest.mark.parametrize("kind", ["ranks", "controllers"])
def test_a_copy_that_misses_an_update_while_it_is_timed_is_different_and_the_worst_parameter_named(
        tmp_path, stand_in, workers_in, kind):
    stand_in(one=f"processes.{kind}:StaleLate")
    done = run(tmp_path, frameworks="one", devices=2)
    (row,) = rows(tmp_path)
    assert (row["status"], row["verified"], row["copies_error"]) == ("failed", "no", "")
    said = re.fullmatch(r"different: the devices' parameters have come apart: device 1 of 2 holds others than the rest; "
                        r"parameters that differ: 8, most of all dense\d\.\w+, by (\S+) of what training changed \(allowed 1e-05\)",
                        row["reason"])
    assert float(said[1]) > 1e-3
    assert done.processes["copies_error"].item() == pytest.approx(float(said[1]), rel=0.05)
    assert workers_in(tmp_path) == []
    assert not list(tmp_path.rglob("answers-*"))


@pytest.mark.parametrize("kind", ["ranks", "controllers"])
def test_copies_that_differ_by_rounding_are_ranked_and_the_row_says_by_how_much(tmp_path, stand_in, kind):
    stand_in(one=f"processes.{kind}:Rounds", other="processes.ranks")
    done = run(tmp_path, frameworks=["one", "other"], devices=2)
    row, equal = rows(tmp_path)
    share = float(row["copies_error"])
    assert 1e-7 < share < 1e-3
    assert done.processes["copies_error"].max() == share
    assert (row["status"], row["verified"], equal["verified"], equal["copies_error"]) == ("ok", "yes", "yes", "")
    remark = f"the devices' copies of the parameters differ by rounding: at most {share:.1e} of what training changed"
    assert remark in row["reason"]
    report.write([tmp_path], tmp_path / "report", plots=False)
    assert remark in (tmp_path / "report" / "tables" / "remarks.csv").read_text()


def test_parts_of_the_step_take_turns_and_what_is_missing_has_its_reason(tmp_path, stand_in):
    stand_in(one="processes.ranks:Parts")
    done = run(tmp_path, frameworks="one", devices=[1, 2], phases=True)
    for trial, missing in zip(done.meta["trials"], ([], ["A"]), strict=True):
        own = done.phases[done.phases["trial"] == trial["trial"]]
        timed = own[own["reason"] == ""]
        assert timed["variant"].tolist() == ["F", "FB", "FBA", "FBAU"] * 2
        assert timed["window"].tolist() == [0] * 4 + [1] * 4
        assert (timed["start"].diff().dropna() > 0).all()
        assert np.allclose(timed["seconds"], timed["stop"] - timed["start"])
        last = done.windows.loc[done.windows["trial"] == trial["trial"], "stop"].max()
        assert (timed["start"] > last).all()
        refused = own[own["reason"] != ""]
        assert refused["variant"].tolist() == missing
        assert set(refused["reason"]) <= {"sums on a socket have no 'A'"}


def test_a_part_that_one_rank_has_no_memory_for_costs_the_others_nothing_and_the_report_says_why(tmp_path, stand_in):
    stand_in(one="processes.ranks:PartsMemory")
    done = run(tmp_path, frameworks="one", devices=2, phases=True)
    failed, timed = (done.phases[(done.phases["reason"] != "") == each] for each in (True, False))
    reason = "out_of_memory: rank 1: MemoryError: no buffers"
    assert failed[["variant", "reason"]].values.tolist() == [["A", reason]]
    assert timed["variant"].tolist() == ["F", "FB", "FBA", "FBAU"] * 2
    remark = f"part A of the step not timed: {reason}"
    assert rows(tmp_path)[0]["reason"].count(remark) == 1
    report.write([tmp_path], tmp_path / "report", plots=False)
    assert (tmp_path / "report" / "report.md").read_text().count(remark) == 1
    assert done.processes["status"].tolist() == ["ok"] and "shortages" not in done.meta  # no other worker was there


@pytest.mark.parametrize(("planted", "reason"), [
    ("memory", "out_of_memory: rank 1: MemoryError: no buffers"), ("refusal", "no aggregation alone")])
def test_a_worker_of_which_a_rank_still_waits_in_a_part_is_asked_nothing_more(
        tmp_path, stand_in, workers_in, monkeypatch, planted, reason):
    monkeypatch.setenv("PLANTED", planted)
    monkeypatch.setattr(launch, "Ranks", partial(Ranks, timeouts=Timeouts(shortage=1.0)))
    stand_in(one="processes.ranks:PartsStuck")
    done = run(tmp_path, frameworks="one", devices=2, phases=True)
    lost = "the worker was lost with part A"
    assert done.phases[["variant", "reason"]].values.tolist() == [
        ["A", reason], *([part, lost] for part in ("F", "FB", "FBA", "FBAU"))]
    assert done.processes["status"].tolist() == ["ok"]
    remark = f"part A of the step not timed: {reason}; parts F, FB, FBA, FBAU of the step not timed: {lost}"
    assert remark in rows(tmp_path)[0]["reason"]
    assert workers_in(tmp_path) == []


def test_a_resumed_campaign_keeps_the_parts_of_finished_processes_and_no_others(tmp_path, stand_in):
    stand_in(one="processes.ranks:Parts")
    suite = {"frameworks": "one", "devices": 2, "phases": True}
    before = run(tmp_path, **suite)
    with (tmp_path / "phases.csv").open("a") as file:
        file.write(f"{before.meta['trials'][0]['trial']},7,F,0,1,1111.0,1112.0,1.0,\n")  # a process that was killed
    assert run(tmp_path, resume=True, **suite).phases.equals(before.phases)
    assert "1111.0" not in (tmp_path / "phases.csv").read_text()


def test_a_runner_without_parts_says_so_and_its_row_stands(tmp_path, stand_in):
    stand_in(one="processes.ranks")
    done = run(tmp_path, frameworks="one", phases=True)
    assert done.phases["reason"].tolist() == [f"this runner has no part '{part}' of a step" for part in ("F", "FB", "FBA", "FBAU")]
    assert rows(tmp_path)[0]["status"] == "ok"


def test_without_phases_there_is_no_file_of_them(tmp_path, stand_in):
    stand_in(one="processes.ranks:Parts")
    assert run(tmp_path, frameworks="one").phases.empty
    assert not (tmp_path / "phases.csv").exists()


@slow
def test_a_fault_between_torchruns_ranks_costs_their_row_alone_and_leaves_nothing_behind(
        tmp_path, monkeypatch, stand_in, interpreter_of, workers_in):
    """The real launcher in a whole campaign; ranks of the reference are timed beside."""
    python, pytorch = interpreter_of("pytorch"), recipes.load("pytorch")
    stand_in(good="processes.ranks")
    known = {"good": recipes.load("good"), **{
        name.lower(): pytorch.model_copy(update={"runner": f"tests.faults.pytorch.ranks:{name}"})
        for name in ("Killed", "Unreachable")}}
    monkeypatch.setattr(recipes, "load", lambda name, folder=None: known[name])
    run(tmp_path, frameworks=["killed", "good", "unreachable"], devices=2, windows=50,
        interpreters={"killed": python, "unreachable": python})
    killed, good, unreachable = rows(tmp_path)
    assert (good["framework"], good["status"], good["verified"]) == ("good", "ok", "yes")
    for row, said in ((killed, "crashed: rank 1 ended during 'run'; log: "),
                      (unreachable, "DistNetworkError")):
        assert row["status"] == "failed" and said in row["reason"]
    assert workers_in(tmp_path) == []
