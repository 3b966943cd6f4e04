"""The operator profile of a CPU: made-up spans whose truth is known, and the profilers of five frameworks through real workers."""

import sys
from dataclasses import replace

import pandas as pd
import pytest

import networks
from analysis.records import reader
from analysis.trials import breakdown
from harness.campaign import campaign, profiling
from harness.campaign.events import Listener
from harness.environments import recipes
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers import answers, reading
from harness.workers.worker import Failed, Unsupported, Worker
from tests.ready import to_train
from tests.slow import slow_but

TRIAL = Trial(framework="good", release="1", network="tiny_fcn", batch=4, devices=1, device_kind="cpu", threads=1,
              precision="fp32", tuning="stock", data="host", learning_rate=0.1, parameters=1, flops_per_step=1, dropout=False,
              processes_planned=1)


def rows_of(*spans, steps=1, wall=10.0):
    """Rows of operators.csv by class and operator."""
    rows = profiling.rows_of("one", {"steps": steps, "wall_seconds": wall, "spans": spans})
    return {f"{row['class']} {row.get('kernel', '')}": row for row in rows}


def test_a_call_has_its_own_time_and_a_wrapper_none():
    rows = rows_of(("AddmmBackward0", "a", 0.0, 6.0), ("aten::linear", "a", 1.0, 5.0), ("aten::addmm", "a", 2.0, 5.0))
    assert rows["matrix product aten::linear"]["exposed_seconds_per_step"] == 1
    assert rows["matrix product aten::addmm"]["exposed_seconds_per_step"] == 3
    assert [rows[f"{kind} "]["seconds_per_step"] for kind in ("wall", "busy", "idle")] == [10, 4, 6]


def test_operators_beside_one_another_share_the_moment():
    rows = rows_of(("dot_general dot", "a", 0.0, 4.0), ("add wrapped_add", "b", 2.0, 6.0))
    assert rows["matrix product dot_general dot"]["seconds_per_step"] == 4
    assert rows["matrix product dot_general dot"]["exposed_seconds_per_step"] == 3
    assert rows["element-wise add wrapped_add"]["exposed_seconds_per_step"] == 3
    assert rows["busy "]["seconds_per_step"] == 6


def test_what_the_optimiser_calls_is_the_optimisers_and_what_comes_after_is_not():
    rows = rows_of(("Optimizer.step#SGD.step", "a", 0.0, 4.0), ("aten::add_", "a", 1.0, 2.0), ("aten::add_", "a", 5.0, 6.0))
    assert rows["optimiser aten::add_"]["seconds_per_step"] == rows["element-wise aten::add_"]["seconds_per_step"] == 1
    assert rows["optimiser Optimizer.step#SGD.step"]["seconds_per_step"] == 3


def test_counts_and_seconds_are_those_of_a_step():
    rows = rows_of(("mean", "a", 0.0, 1.0), ("mean", "a", 4.0, 7.0), steps=2)
    assert (rows["reduction mean"]["count_per_step"], rows["reduction mean"]["seconds_per_step"]) == (1, 2)


def test_a_profile_without_an_operator_is_all_outside():
    assert [row["class"] for row in rows_of(("train_step", "a", 0.0, 9.0)).values()] == ["wall", "busy", "idle"]


def test_only_cpu_trials_are_profiled_and_only_where_the_suite_asks_for_it():
    asked = Suite(profile=True)
    assert profiling.wanted(asked, TRIAL) and not profiling.wanted(Suite(), TRIAL)
    assert not profiling.wanted(asked, replace(TRIAL, device_kind="cuda"))


@pytest.mark.parametrize("framework", slow_but(["pytorch"], ["pytorch", "tensorflow", "jax", "mxnet", "paddle"]))
def test_each_profiler_sees_where_a_step_goes(framework, interpreter_of, tmp_path):
    variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **profiling.UNBULKED}
    with Worker(interpreter_of(framework), recipes.load(framework).runner, tmp_path / "log", variables) as worker:
        to_train(worker, tmp_path, 300, "tiny_cnn", 4, device="cpu", threads=1)
        worker.ask("run", limit=300, steps=4)
        worker.ask("profile", limit=300, steps=10, out=str(tmp_path / "profile.json"))
    written = reading.read(answers.Profiled, (tmp_path / "profile.json").read_bytes(), answers.Asked("profile", {"steps": 10}, 0.0))
    rows = pd.DataFrame(profiling.rows_of("one", written))
    seconds = rows.groupby("class")["exposed_seconds_per_step"].sum()
    busy, wall = (rows.loc[rows["class"] == kind, "seconds_per_step"].item() for kind in ("busy", "wall"))
    assert {"matrix product", "convolution", "reduction", "element-wise"} <= set(rows["class"])
    assert seconds.get("unclassified", 0) <= 0.03 * busy
    assert seconds.sum() == pytest.approx(busy) and 0 < busy < 1.1 * wall
    assert (rows.loc[rows["class"] == "convolution", "count_per_step"] % 1 == 0).all()


def test_a_runner_without_a_profiler_says_so(tmp_path):
    with (Worker(sys.executable, "tests.faults.reference", tmp_path / "log") as worker,
          pytest.raises((Unsupported, Failed), match="this runner offers no operator profile")):
        worker.ask("build", limit=60, network=networks.get("tiny_fcn").to_json(), batch=2)
        worker.ask("profile", limit=60, steps=1, out=str(tmp_path / "profile.json"))


def test_a_campaign_keeps_profiles_and_a_resumed_one_makes_what_is_missing(tmp_path, stand_in, monkeypatch):
    stand_in(good="reference")
    asked = {"networks": "tiny_fcn", "frameworks": "good", "device": "cpu", "threads": 1, "processes": 1, "windows": 1,
             "window_seconds": 0.01, "data": "host", "peaks": False}

    def run(resume, **suite):
        prepared = campaign.prepare(Suite.model_validate({**asked, **suite}), "suite.yaml")
        campaign.run(prepared, tmp_path, Listener(), resume)
        return reader.read(tmp_path)

    assert run(False).operators.empty and not (tmp_path / "operators.csv").exists()
    done = run(True, profile=True)  # asked for later: only the profiles are made
    assert done.operators[["class", "reason"]].values.tolist() == [["no trace", "this runner offers no operator profile"]]
    name = done.trials[0]["trial"]
    with pytest.raises(breakdown.NotExplained, match=r"operators\.csv says why there is no trace: this runner offers no operator"):
        breakdown.of_trial(done, name)
    (tmp_path / "operators.csv").unlink()
    with pytest.raises(breakdown.NotExplained, match=r"operators\.csv holds nothing of it: .* with profile=true"):
        breakdown.of_trial(reader.read(tmp_path), name)


def test_a_trial_on_several_cpu_devices_says_why_it_has_no_profile_and_starts_no_worker_for_it(tmp_path, stand_in):
    stand_in(good="processes.ranks")
    suite = Suite.model_validate({
        "networks": {"tiny_fcn": {"batches": 4}}, "frameworks": "good", "device": "cpu", "threads": 1, "devices": 2, "processes": 1,
        "windows": 1, "window_seconds": 0.01, "data": "host", "peaks": False, "profile": True})
    campaign.run(campaign.prepare(suite, "suite.yaml"), tmp_path, Listener())
    done = reader.read(tmp_path)
    reason = "operators are profiled on one CPU device; of several, phases: true takes the step apart"
    assert done.operators[["class", "reason"]].values.tolist() == [["no trace", reason]]
    assert list((tmp_path / "logs").glob("*-profile.log")) == []
    with pytest.raises(breakdown.NotExplained, match=rf"operators\.csv says why there is no trace: {reason}$"):
        breakdown.of_trial(done, done.trials[0]["trial"])
    (tmp_path / "operators.csv").unlink()  # as where nobody asked for profiles: asking would give none
    with pytest.raises(breakdown.NotExplained, match="several CPU devices have no profile; a report takes their step apart where"):
        breakdown.of_trial(reader.read(tmp_path), done.trials[0]["trial"])
