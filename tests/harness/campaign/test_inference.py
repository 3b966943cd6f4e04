"""Campaigns in inference: rows, every call's time, and faults that begin when calls are timed."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.audit import audit
from analysis.compare import verdicts
from analysis.records import manifest, packed, reader
from analysis.report import report
from analysis.site import grids, leaderboard
from analysis.trials import latency, summary
from harness.campaign import campaign, session
from harness.cli.explain import ExplainOptions, explain
from harness.environments import store
from harness.errors import WrongUse
from harness.inference import scenarios
from harness.plan import planner
from harness.plan.suite import Suite
from harness.validation import validate
from harness.workers.worker import Failed
from tests.harness import campaigns
from tests.slow import slow

NETWORK = {"mode": "inference", "networks": "tiny_fcn", "batches": 4}


@pytest.mark.usefixtures("made_up_clock")
def test_a_right_engine_is_ranked_with_its_latency_and_the_records_hold(stand_in, tmp_path):
    stand_in(good="engines:Steady", slow="engines:Slow")
    found = campaigns.run(tmp_path, frameworks=["good", "slow"], processes=3, window_seconds=0.1, **NETWORK)
    rows = summary.summarise(found).set_index("framework")
    assert rows["verified"].tolist() == 2 * ["yes"], rows["reason"].tolist()
    assert rows["mode"].tolist() == 2 * ["inference"]
    assert (rows["output_error"] < rows["output_limit"]).all() and rows["loss_first"].isna().all()
    for name in ("p50", "p90"):
        values = rows[[f"latency_{name}_seconds{end}" for end in ("_low", "", "_high")]].to_numpy(float)
        assert (np.diff(values, axis=1) >= 0).all()
    # One call of a hundred takes 40 ms more, in `slow` alone.
    shares = [np.mean(np.concatenate(latency.calls_of(found, trial)) > 0.04) for trial in rows["trial"]]
    assert shares[0] == 0 and shares[1] == pytest.approx(0.01, rel=0.5)
    for trial in rows["trial"]:
        counted = found.rows("windows", trial).query("window >= 0").groupby("process")["steps"].sum()
        assert [len(calls) for calls in latency.calls_of(found, trial)] == counted.tolist()
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "Time per call and its 95 % interval" in text and "time per mini-batch" not in text
    assert "## Latency of a call" in text and "loss" not in text.split("## Method")[0]
    told = pd.read_csv(tmp_path / "tables" / "first_call.csv").set_index("framework")
    ok = found.processes.assign(both=found.processes["build_seconds"] + found.processes["first_call_seconds"])
    for trial in found.trials:
        medians = ok[ok["trial"] == trial["trial"]].median(numeric_only=True)
        shown = [float(told.loc[trial["framework"], f"{name} (s)"].partition(" ")[0]) for name in ("build", "first call", "both")]
        assert shown == pytest.approx(medians[["build_seconds", "first_call_seconds", "both"]].tolist(), rel=0.01)
    assert "file" not in " ".join(told.columns) and "## Build and first call" in text
    assert "latency_p50.svg" in text
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []


def test_calls_that_were_cut_or_changed_do_not_pass_an_audit(stand_in, tmp_path):
    stand_in(good="engines:Good")
    campaigns.run(tmp_path, frameworks="good", processes=1, **NETWORK)
    table = pd.read_csv(tmp_path / "latencies.csv", dtype=str)
    calls = table.loc[0, "nanoseconds"].split()
    for changed in (calls[1:], [str(10 * int(calls[0])), *calls[1:]]):
        table.loc[0, "nanoseconds"] = " ".join(changed)
        table.to_csv(tmp_path / "latencies.csv", index=False)
        assert "latencies.csv" in {finding.file for finding in audit.audit(tmp_path)
                                   if finding.column == "nanoseconds"}


def test_calls_are_profiled_and_the_difference_of_two_engines_is_explained(tmp_path, interpreter_of):
    for framework in ("pytorch", "onnxruntime"):
        interpreter_of(framework)
    found = campaigns.run(tmp_path, frameworks=["pytorch", "onnxruntime"], processes=1, profile=True, windows=2, window_seconds=0.02,
                          **{**NETWORK, "networks": "tiny_resnet"})
    walls = []
    for trial in found.trials:
        rows = found.rows("operators", trial["trial"])
        seconds = rows.groupby("class")["seconds_per_step"].sum()
        assert 0 < seconds["convolution"] < seconds["busy"] <= seconds["wall"] and "unclassified" not in seconds
        # The calls that warm a session up are not counted.
        assert (rows["count_per_step"].dropna() % 1 == 0).all()
        walls.append(seconds["wall"])
        time_as_traced(tmp_path / "windows.csv", trial["trial"], seconds["wall"])
    explain(ExplainOptions(folders=[tmp_path], a="pytorch", b="onnxruntime", out=tmp_path / "why"))
    parts = pd.read_csv(tmp_path / "why" / "explain.csv").set_index("class")
    assert {"convolution", "idle", "residual"} <= set(parts.index)
    assert parts.loc["residual", ["seconds_a", "seconds_b"]].tolist() == pytest.approx([0, 0], abs=1e-9)
    sums = parts.drop("residual")[["seconds_a", "seconds_b", "difference_seconds"]].sum()
    assert sums.tolist() == pytest.approx([*walls, walls[1] - walls[0]])
    text = (tmp_path / "why" / "explain.md").read_text()
    assert "| call | " in text and "Every moment of a call counts once." in text and "a call took" in text


def time_as_traced(file, trial, seconds):
    """Let a trial's calls take as long as under the profiler: on a shared machine other programs slow the two apart."""
    table = pd.read_csv(file)
    own = table["trial"] == trial
    table.loc[own, "step_seconds"] = seconds
    table.loc[own, "seconds"] = seconds * table.loc[own, "steps"]
    table.to_csv(file, index=False)


def test_int8_is_a_row_of_its_own_with_its_cost_and_training_has_none(stand_in, tmp_path):
    stand_in(good="engines:Good", runner="reference:Runner")
    found = campaigns.run(tmp_path, frameworks="good", processes=1, precisions=["fp32", "int8"],
                          **{**NETWORK, "networks": ["tiny_cnn", "tiny_lstm"]})
    rows = summary.summarise(found).set_index(["network", "precision"])
    int8, fp32 = rows.loc["tiny_cnn", "int8"], rows.loc["tiny_cnn", "fp32"]
    assert int8["output_error"] < 1e-5 < 1e-4 < int8["quantization_error"] < 0.1 and pd.isna(fp32["quantization_error"])
    assert 0 < int8["top1_agreement"] <= 1 and int8["first_call_seconds"] > 0 < fp32["first_call_seconds"]
    refused = rows.loc["tiny_lstm", "int8"]
    assert (refused["status"], refused["reason"]) == (
        "unsupported", "layer lstm1: 'lstm' has no static INT8 form here; conv2d, dense, linear, tied_dense have")
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    assert "## What INT8 costs" in (tmp_path / "report.md").read_text()
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []
    published = grids.read(tmp_path)
    assert {cells[grids.ROWS.index("precision")].text for cells in grids.every_row([published]).rows} == {"fp32", "int8"}
    campaigns.run(tmp_path / "steps", frameworks="runner", processes=1, precisions="int8")
    row = campaigns.table(tmp_path / "steps")["runner tiny_fcn"]
    assert row["reason"] == "INT8 is a format of trained networks; write mode: inference"


def test_an_engine_without_int8_kernels_says_so():
    suite = validate({"mode": "inference", "networks": "tiny_fcn", "frameworks": "pytorch", "precisions": "int8"},
                     Suite, "suite.yaml")
    [trial] = planner.make_trials(suite, {"pytorch": "2.13.0"}, planner.Machine("cpu", 2, 0), lambda name: False)
    assert (trial.status, trial.reason) == (
        "unsupported", "dlbench runs no INT8 in PyTorch: choose onnxruntime or openvino")


SERVER = {"scenarios": "server", "latency_bound_seconds": 0.03, "latency_percentile": 90, "processes": 1, "windows": 2,
          "window_seconds": 0.25, **NETWORK, "batches": 1}


@pytest.fixture
def loadgen_here(monkeypatch):
    """LoadGen lies beside the stand-ins already."""
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen has no wheel for this Python")
    monkeypatch.setattr(store, "extended", lambda base, packages, note: base)


@pytest.mark.usefixtures("loadgen_here")
def test_a_server_finds_its_rate_and_slow_calls_cost_it(stand_in, tmp_path):
    stand_in(good="engines:Sleeps", slow="engines:SleepsOften")
    found = campaigns.run(tmp_path, frameworks=["good", "slow"], **SERVER)
    rows = summary.summarise(found).set_index("framework")
    good = rows.loc["good"]
    # No queue of one worker keeps 30 ms at more than its own rate; M/D/1 keeps it at nine tenths. Others use the machine.
    assert 0.3 < good["requests_per_second"] * good["step_seconds"] < 1
    assert rows.loc["slow", "requests_per_second"] == 0
    assert rows["verified"].tolist() == ["yes", "yes"], rows["reason"].tolist()
    played = found.scenarios.assign(framework=found.scenarios["trial"].str.partition("-")[0]).set_index("framework")
    assert played.loc["good", "valid"] == 1 and played.loc["slow", "valid"] == 0
    assert played.loc["slow", "unmet"] == "no rate that was tried kept the latency"
    assert set(found.server["within"]) == {0, 1} and (found.server["within"] <= found.server["valid"]).all()
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "## Requests that a server answers in time" in text and "with 90 % of them answered within 0.03 s" in text
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []
    whole = pd.read_csv(tmp_path / "server.csv")
    best = whole.index[whole["within"] == 1][-1]
    for column, factor, finding in (
            ("mean_latency_seconds", 0.5, ("server.csv", "in_system")), ("completed_per_second", 2, ("server.csv", "completed_per_second")),
            ("valid", 0, ("server.csv", "within")), ("requests", 0.1, ("server.csv", "within")),
            ("within", 0, ("scenarios.csv", "samples_per_second"))):
        table = whole.copy()
        table.loc[best, column] = type(table.loc[best, column].item())(factor * table.loc[best, column])
        table.to_csv(tmp_path / "server.csv", index=False)
        assert finding in {(each.file, each.column) for each in audit.audit(tmp_path)}, column


@pytest.mark.parametrize(("scenario", "ends"), [(["offline"], ["", " with LoadGen"]), ([], [""])])
def test_loadgen_lies_beside_what_dlbench_built_and_only_where_scenarios_need_it(stand_in, monkeypatch, scenario, ends):
    stand_in(good="engines:Good", own="engines:Good")
    asked = []
    monkeypatch.setattr(store, "extended", lambda base, packages, note: asked.append(packages) or replace(base, key="more"))
    suite = Suite.model_validate({**campaigns.SMALL, **NETWORK, "frameworks": ["good", "own"], "scenarios": scenario,
                                  "interpreters": {"own": sys.executable}})
    found = session.build_environments(campaign.prepare(suite, "suite.yaml", False), print)
    assert set(found) == {f"own=={np.__version__}", *(f"good=={np.__version__}{end}" for end in ends)}
    assert asked == [[scenarios.PACKAGE]] * len(scenario)
    [trial, _] = campaign.prepare(suite, "suite.yaml", False).planned
    opened = session.Session(suite, found, Path(), None, None)
    assert opened.environment(trial).key == ("more" if scenario else "good") and opened.without_loadgen(trial) == ""


def test_where_loadgen_cannot_be_installed_calls_are_timed_and_scenarios_say_why(stand_in, monkeypatch, tmp_path):
    def fails(base, packages, note):
        assert packages == [scenarios.PACKAGE]
        raise store.BuildFailed("ERROR: No matching distribution found for mlcommons-loadgen\nWhole log: x")

    stand_in(good="engines:Good")
    monkeypatch.setattr(store, "extended", fails)
    found = campaigns.run(tmp_path, frameworks="good", processes=1, scenarios=["server", "offline"],
                          latency_bound_seconds=0.1, **NETWORK)
    assert campaigns.table(tmp_path)["good tiny_fcn"]["verified"] == "yes"
    assert found.scenarios["unmet"].tolist() == 2 * ["unsupported: ERROR: No matching distribution found for mlcommons-loadgen"]
    assert found.scenarios["valid"].tolist() == [0, 0] and found.server.empty
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    assert "unsupported: ERROR: No matching distribution" in (tmp_path / "report.md").read_text()
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []


@slow
@pytest.mark.usefixtures("loadgen_here")
def test_loadgen_asks_in_its_scenarios_and_an_engine_without_it_says_so(stand_in, tmp_path):
    stand_in(good="engines:Good", bare="engines:WithoutLoadGen")
    found = campaigns.run(tmp_path, frameworks=["good", "bare"], processes=1, window_seconds=0.05,
                          scenarios=["multistream", "offline"], **NETWORK)
    rows = found.scenarios.assign(framework=found.scenarios["trial"].str.partition("-")[0]).set_index(["framework", "scenario"])
    several, offline = rows.loc["good", "multistream"], rows.loc["good", "offline"]
    assert several["latency_p50_seconds"] <= several["latency_p99_seconds"] <= several["seconds"] and pd.isna(offline["latency_p99_seconds"])
    assert offline["samples_per_second"] > 0 and offline["batch"] == 4
    # On a machine that others use, LoadGen may find that a run of 50 ms was too short.
    assert (offline["valid"] == 1) == (pd.isna(offline["unmet"]) or offline["unmet"] == "")
    assert "MLPerf's scenarios need the package mlcommons-loadgen" in rows.loc["bare", "offline"]["unmet"]
    assert campaigns.table(tmp_path)["bare tiny_fcn"]["status"] == "ok"
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    assert "## MLPerf's scenarios" in (tmp_path / "report.md").read_text()
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []
    table = pd.read_csv(tmp_path / "scenarios.csv")
    for changed in (2000 * offline["samples_per_second"], offline["samples_per_second"] / 2000):
        table["samples_per_second"] = changed
        table.to_csv(tmp_path / "scenarios.csv", index=False)
        assert ("scenarios.csv", "samples_per_second") in {(each.file, each.column) for each in audit.audit(tmp_path)}


def test_a_summary_of_loadgen_without_a_number_is_no_row():
    answer = {"steps": 3, "start": 1.0, "stop": 2.0}
    text = "Samples per second: 8.5\nResult is : INVALID\n  Min duration satisfied : NO\n"
    row = scenarios.row_of("offline", 4, answer, text)
    assert (row["samples_per_second"], row["valid"], row["unmet"]) == (8.5, 0, "min duration")
    with pytest.raises(Failed, match="LoadGen's summary has no line 'Mean latency"):
        scenarios.row_of("multistream", 4, answer, text)


def test_a_rate_beyond_littles_law_is_implausible():
    tries = pd.DataFrame([{"rate": 99.0, "requests": 500, "seconds": 5.0, "completed_per_second": 99.0,
                           "mean_latency_seconds": 0.02, "in_system": 1.9}])
    assert latency.against({"requests_per_second": 100.0}, 0.01, 1, tries) == []
    assert latency.against({"requests_per_second": 200.0}, 0.01, 2, tries) == []
    [reason] = latency.against({"requests_per_second": 200.0}, 0.01, 1, tries)
    assert reason.startswith("implausible: by Little's law 2 calls are computed at a time")
    for column, value, says in (("mean_latency_seconds", 0.01, "in_system is 1.9, expected at most 1.0395 by Little's law"),
                                ("completed_per_second", 120.0, "completed_per_second is 120, expected 100, as the worker counted")):
        [reason] = latency.against({}, 0.01, 1, tries.assign(**{column: value}))
        assert reason == f"implausible: at 99 requests a second {says}"


def test_requests_of_an_earlier_release_fit_littles_law_by_one_clock():
    row = {"requests": 500, "seconds": 5.0, "mean_latency_seconds": 0.02, "completed_per_second": np.nan}
    assert list(latency.contradicted({**row, "in_system": 2.0})) == []
    assert list(latency.contradicted({**row, "in_system": 2.1})) == [("in_system", "2 by Little's law")]


def test_a_fault_that_begins_in_the_timed_calls_is_named(stand_in, tmp_path):
    stand_in(late="engines:CachedLater")
    campaigns.run(tmp_path, frameworks="late", processes=1, **NETWORK)
    row = campaigns.table(tmp_path)["late tiny_fcn"]
    assert row["verified"] == "no"
    assert row["reason"].startswith("different from the reference: in timed calls: outputs are off by")


def test_calls_that_only_repeat_the_one_before_are_found_by_an_odd_number_of_calls(stand_in, tmp_path):
    """Windows end with an even call; the third process makes three more."""
    stand_in(every="engines:RepeatsEvery2")
    done = campaigns.run(tmp_path, frameworks="every", processes=3, window_seconds=1e-6, window_steps=4, **NETWORK)
    assert done.processes.sort_values("process")["check"].tolist() == ["same", "same", "different"]
    assert campaigns.table(tmp_path)["every tiny_fcn"]["verified"] == "no"


def test_an_engine_does_not_train_and_a_runner_does_not_infer(stand_in, tmp_path):
    stand_in(engine="engines:Good", runner="reference:Runner")
    campaigns.run(tmp_path / "a", frameworks=["engine", "runner"], processes=1)
    rows = campaigns.table(tmp_path / "a")
    assert rows["engine tiny_fcn"]["reason"] == "engine runs trained networks and trains none; write mode: inference"
    assert rows["runner tiny_fcn"]["status"] == "ok" and "mode" not in rows["runner tiny_fcn"]
    campaigns.run(tmp_path / "b", frameworks=["engine", "runner"], processes=1, **NETWORK)
    rows = campaigns.table(tmp_path / "b")
    assert rows["runner tiny_fcn"]["reason"] == "runner has no engine here, so it only trains; write mode: training"
    assert rows["engine tiny_fcn"]["status"] == "ok"


def test_work_of_a_call_is_the_forward_pass(stand_in, tmp_path):
    stand_in(good="engines:Good")
    found = campaigns.run(tmp_path, frameworks="good", processes=1, **NETWORK)
    # 12-16-24-8-5
    assert found.trials[0]["flops_per_step"] == 2 * 4 * (12 * 16 + 16 * 24 + 24 * 8 + 8 * 5)


@pytest.mark.parametrize(("keys", "says"), [
    ({"devices": 2}, "mode: inference: a network runs on one device; write devices: 1 and nodes: 1"),
    ({"phases": True}, "phases: looks into a training step; leave it out"),
    ({"mode": "training", "scenarios": "server", "latency_bound_seconds": 1}, "scenarios: requests are answered by trained"),
    ({"mode": "training", "latency_bound_seconds": 1}, "latency_bound_seconds: requests are answered by trained networks"),
    ({"server": {"latency_seconds": 1}}, "server: is a scenario; write scenarios: server and latency_bound_seconds: 0.1"),
    ({"scenario": "server"}, "scenarios: server needs the latency that its requests must keep; write latency_bound_seconds"),
    ({"latency_bound_seconds": 1}, "latency_bound_seconds: is of the scenario server; write scenarios: server, or leave"),
    ({"scenarios": "offline", "latency_percentile": 90}, "latency_percentile: is of the scenario server; write scenarios"),
    ({"scenarios": "server", "latency_bound_seconds": -1}, "latency_bound_seconds: input should be greater than 0, is -1"),
    ({"scenarios": "server", "latency_bound_seconds": 1, "latency_percentile": 0}, "latency_percentile: input should be greater than 0"),
    ({"scenarios": "server", "latency_bound_seconds": 1, "latency_percentile": 100}, "latency_percentile: is 100; write one that LoadGen gives: 50, 90"),
    ({"scenarios": "server", "latency_bound_seconds": "soon"}, "latency_bound_seconds: input should be a number, is the text 'soon'"),
    ({"scenarios": ["offline", "offline"]}, "scenarios: offline, offline: write each once"),
    ({"mode": "training", "scenarios": "offline"}, "scenarios: requests are answered by trained networks"),
    ({"scenarios": "online"}, "input should be 'server', 'multistream' or 'offline'"),
    ({"mode": "serving"}, "input should be 'training' or 'inference'")])
def test_what_only_training_has_is_refused(keys, says):
    with pytest.raises(WrongUse) as refused:
        validate({"mode": "inference", "networks": "tiny_fcn", **keys}, Suite, "suite.yaml")
    assert says in str(refused.value)


def test_a_call_is_not_compared_with_a_training_step_and_has_a_board_of_its_own(stand_in, tmp_path):
    stand_in(one="engines:Good", two="engines:Good", trainer="reference:Runner")
    calls = campaigns.run(tmp_path / "calls", frameworks=["one", "two"], processes=1, **NETWORK)
    steps = campaigns.run(tmp_path / "steps", frameworks="trainer", processes=1, batches=4)
    with pytest.raises(verdicts.NotComparable, match="calls measured inference and steps training: a ratio"):
        verdicts.compare(verdicts.recorded(calls), verdicts.recorded(steps))
    published = grids.read(tmp_path / "calls")
    # Whatever a busy machine makes of the timer.
    proven = replace(published, rows=published.rows.assign(verified="yes"))
    [board] = leaderboard.boards([proven])
    assert (board.phase, board.frameworks) == ("inference", ["one", "two"])
    assert "refuses outputs that are off by more than" in board.lines[0].cells[0].strength
    assert {cells[grids.ROWS.index("tuning")].text for cells in grids.every_row([proven]).rows} == {"stock, inference"}


def test_a_process_that_lost_calls_is_measured_again_and_packed_calls_are_read(stand_in, tmp_path):
    stand_in(good="engines:Good")
    whole = campaigns.run(tmp_path, frameworks="good", processes=2, **NETWORK)
    file = tmp_path / "latencies.csv"
    # The calls of a killed attempt, and a line that lost some of its calls.
    rows = file.read_text().splitlines()
    file.write_text("\n".join([rows[0], rows[1], *rows[1:-1], rows[-1].rpartition(" ")[0]]) + "\n")
    again = campaigns.run(tmp_path, resume=True, frameworks="good", processes=2, **NETWORK)
    assert again.processes["reason"].tolist() == ["", "measured again: its rows in latencies.csv were damaged"]
    trial = whole.trials[0]["trial"]
    assert latency.calls_of(again, trial)[0].tolist() == latency.calls_of(whole, trial)[0].tolist()
    packed.pack(file, 0)
    assert not file.exists()
    assert [calls.tolist() for calls in latency.calls_of(reader.read(tmp_path), trial)] == \
        [calls.tolist() for calls in latency.calls_of(again, trial)]
