"""Records on disk: a process counts once its row is there, files are replaced whole, and wrong folders are refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.display import provenance
from analysis.records import pages
from analysis.records import reader as reading
from analysis.records.columns import LATE, OF_ANSWERS, PROCESS_COLUMNS, WINDOW_COLUMNS
from analysis.records.reader import SCHEMA
from harness.campaign.events import Outcome
from harness.campaign.process import settings_of
from harness.campaign.recorder import MEASURES, Recorder
from harness.errors import WrongUse
from harness.plan.planner import Machine, make_trials
from harness.plan.suite import Suite

SUITE = Suite(frameworks="reference", networks=["tiny_fcn", "tiny_lstm"], batches=4, threads=1, processes=2, windows=1)
TRIALS = make_trials(SUITE, {"reference": "1.0"}, Machine("cpu", 1, 1), lambda name: False)
FCN, LSTM = (trial.trial for trial in TRIALS)
DIVERGED = "diverged: the loss is nan after step 8"
GPUS = [{"index": index, "name": "NVIDIA H200", "driver": "580.65", "temperature_celsius": 30} for index in (0, 1)]
HERE = {"suite": SUITE.model_dump(mode="json"), "data_sets": {}, "variables": {"NCCL_P2P_DISABLE": "1"}, "source_hash": "a" * 64,
        "machine": {"cpu": {"model": "Xeon", "turbo": True}, "gpus": GPUS, "load_average": [0.1]}}
META = {"schema": SCHEMA, "name": "test", "started": "2026-01-01T00:00:00+00:00", "finished": None,
        "dlbench": "0", "environments": {}, "trials": [trial.to_json() for trial in TRIALS], **HERE}


@pytest.fixture
def open_records(tmp_path) -> Recorder:
    return Recorder.create(tmp_path, META)


def resume(folder: Path, **changes: Any) -> Recorder:
    return resume_here(folder, suite={**META["suite"], **changes})


def resume_here(folder: Path, **changes: Any) -> Recorder:
    return Recorder.resume(folder, [trial.trial for trial in TRIALS], {**HERE, **changes})


def filled(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows, with "" for what is missing."""
    return table.astype(object).where(table.notna(), "").to_dict("records")


def process(trial: str, number: int, **values: Any) -> dict[str, Any]:
    return {"trial": trial, "process": number, "order": 0, "status": "ok", "reason": "", "window_steps": 4, "parameters": 861,
            "check": "same", "check_reason": "", "loss_error": 0.1 + 0.2, "gradient_error": 1e-300,
            "trajectory_error": float("nan"), "peak_memory_bytes": 2**53 - 1, "device_memory_bytes": 2**40,
            "build_seconds": 1 / 3, "started": "2026-01-01T00:00:00+00:00", "release": "1.0",
            "device_name": 'a "quoted", name', "log": "logs/log", "copies_error": 3.1e-7, "proof_seconds": 0.7,
            "proof_rate_error": 0.01, "proof_frozen_share": 0.1 + 0.2, "proof_gradient_error": float("inf"),
            "settings": "channels_last; fused", "output_error": 1e-7, "output_limit": 1e-5,
            "quantization_error": 0.01, "top1_agreement": 0.75, "first_call_seconds": 0.5, "model_bytes": 2**40, **values}


def window(trial: str, number: int, index: int, **values: Any) -> dict[str, Any]:
    return {"trial": trial, "process": number, "window": index, "steps": 4, "last_step": 4 * (index + 2),
            "start": 123456.789012345, "stop": 123456.889012347,
            "seconds": 0.100000002, "step_seconds": 0.1 / 3, "loss": 2.302585092994046, **values}


def text_of(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in ("processes.csv", "windows.csv")}


def test_the_columns_are_those_that_the_analysis_reads(open_records):
    keys = pages.PlannedTrial.model_fields.items()
    assert {name for name, key in keys if key.is_required()} <= set(TRIALS[0].to_json())
    assert set(MEASURES) <= set(Suite.model_fields)
    assert text_of(open_records.folder) == {
        "processes.csv": ",".join(PROCESS_COLUMNS) + "\n", "windows.csv": ",".join(WINDOW_COLUMNS) + "\n"}


@pytest.mark.parametrize(("table", "values", "fault"), [
    ("windows", {"start": float("nan")}, "windows.csv: start: came nan, expected a number"),
    ("windows", {"seconds": float("inf")}, "windows.csv: seconds: came inf, expected a finite number"),
    ("windows", {"steps": 1.5}, "windows.csv: steps: came 1.5, expected a whole number"),
    ("processes", {"peak_memory_bytes": "much"}, "processes.csv: peak_memory_bytes: came 'much', expected a number"),
    ("processes", {"parameters": True}, "processes.csv: parameters: came True, expected a number"),
    ("counters", {"energy_joules": [1]}, "counters.csv: energy_joules: came [1], expected a number"),
])
def test_a_row_that_no_reader_takes_costs_its_process_only(open_records, table, values, fault):
    open_records.append(Outcome(process(FCN, 0), [window(FCN, 0, 0)]))
    rows = {"windows": window(FCN, 1, 0), "processes": process(FCN, 1), "counters": {"device": "host", "kind": "slow"}}
    rows[table] = {**rows[table], **values}
    open_records.append(Outcome(rows["processes"], [rows["windows"]], [rows["counters"]]))
    found = reading.read(open_records.folder)
    assert found.processes["reason"].tolist() == ["", f"protocol: {fault}"]
    assert (found.processes["status"].tolist(), found.windows["process"].tolist()) == (["ok", "failed"], [0])


def test_text_of_a_worker_is_one_line_of_a_cell(open_records):
    open_records.append(Outcome(process(FCN, 0, reason="two\nlines\x1b[2J \ud800", device_name=100_000 * "x")))
    row = reading.read(open_records.folder).processes.iloc[0]
    assert (row["reason"], len(row["device_name"])) == ("two lines [2J  ", 5000)
    open_records.append_kernels([{"trial": FCN, "class": "wall", "seconds_per_step": "long"}])
    assert reading.read(open_records.folder).kernels[["class", "reason"]].values.tolist() == [
        ["no trace", "protocol: kernels.csv: seconds_per_step: came 'long', expected a number"]]


def test_what_was_appended_is_read_back(open_records):
    open_records.append(Outcome(process(FCN, 0), [window(FCN, 0, -1), window(FCN, 0, 0, loss=float("nan"))]))
    open_records.append(Outcome(process(LSTM, 0, status="failed", reason="crashed: a, b\nc"), []))
    found = reading.read(open_records.folder)
    assert found.meta == META
    first, second = filled(found.processes)
    assert first == {**process(FCN, 0), "trajectory_error": "", "node": "", "pixel_error": "",
                     "second_proof_seconds": "", "process_seconds": "", "proof_limit_share": "", **dict.fromkeys(OF_ANSWERS, ""),
                     "stage_idle_shares": ""}
    assert (second["status"], second["reason"]) == ("failed", "crashed: a, b c")
    assert filled(found.windows) == [window(FCN, 0, -1), window(FCN, 0, 0, loss="")]
    assert open_records.finished() == {(FCN, 0), (LSTM, 0)}


def test_trials_agree_with_the_rest_where_the_processes_end_and_take_a_twentieth_of_the_time_until_then(tmp_path):
    seconds = iter([0, 100, 101])  # is it due, begun, done
    records = Recorder.create(tmp_path, META)
    records.clock = lambda: next(seconds)
    with pytest.raises(KeyboardInterrupt), records.in_agreement():
        records.append(Outcome(process(FCN, 0), [window(FCN, 0, 0, loss=float("nan"))]))
        assert records.summary_due == 101 + 20
        records.clock = lambda: 120.0
        records.append(Outcome(process(LSTM, 0, status="failed", reason="crashed: a, b\nc"), []))
        late = "not run yet: the campaign was interrupted; `dlbench run --resume` goes on"
        assert reasons(tmp_path) == [DIVERGED, late]
        raise KeyboardInterrupt
    assert reasons(tmp_path) == [DIVERGED, "crashed: a, b c"]


def reasons(folder: Path) -> list[str]:
    with (folder / "trials.csv").open(newline="") as file:
        return [row["reason"] for row in csv.DictReader(file)]


def test_a_column_that_the_files_have_not_is_left_out_and_a_missing_value_is_empty(open_records):
    open_records.append(Outcome({"trial": FCN, "process": 0, "order": 0, "status": "failed", "reason": "crashed: x", "colour": "red"}, []))
    assert text_of(open_records.folder)["processes.csv"].splitlines()[1] == f"{FCN},0,0,failed,crashed: x" + 35 * ","


def test_resuming_leaves_whole_records_as_they_are_to_the_last_digit(open_records):
    open_records.append(Outcome(process(FCN, 0), [window(FCN, 0, -1), window(FCN, 0, 0)]))
    open_records.append(Outcome(process(FCN, 1, window_steps=float("nan"), status="failed", reason="timed_out: x"), [window(FCN, 1, -1)]))
    before = text_of(open_records.folder)
    assert resume(open_records.folder).finished() == {(FCN, 0), (FCN, 1)}
    assert text_of(open_records.folder) == before


def test_resuming_a_campaign_of_an_earlier_release_leaves_its_new_columns_empty(open_records):
    none = dict.fromkeys(LATE["processes"], float("nan"))
    open_records.append(Outcome(process(FCN, 0, **none), [window(FCN, 0, -1), window(FCN, 0, 0)]))
    file = open_records.folder / "processes.csv"
    pd.read_csv(file, dtype=str).drop(columns=list(LATE["processes"])).to_csv(file, index=False)
    assert not reading.read(open_records.folder).proves_each_process
    resume(open_records.folder).append(Outcome(process(FCN, 1), [window(FCN, 1, -1), window(FCN, 1, 0)]))
    found = reading.read(open_records.folder)
    assert found.proves_each_process
    assert found.processes["proof_rate_error"].fillna(-1).tolist() == [-1, 0.01]


def test_resuming_drops_what_a_killed_driver_left(open_records):
    open_records.append(Outcome(process(FCN, 0), [window(FCN, 0, -1), window(FCN, 0, 0)]))
    before = text_of(open_records.folder)
    with (open_records.folder / "windows.csv").open("a") as file:
        file.write(before["windows.csv"].splitlines()[1].replace(f"{FCN},0", f"{FCN},1") + "\n")
    with (open_records.folder / "processes.csv").open("a") as file:
        file.write(f"{FCN},1,1,ok")
    with pytest.warns(UserWarning, match=r"processes\.csv: the last line is unfinished"):
        assert resume(open_records.folder).finished() == {(FCN, 0)}
    assert text_of(open_records.folder) == before


def test_an_update_changes_its_fields_and_keeps_the_others(open_records):
    open_records.update(finished="2026-01-02T00:00:00+00:00")
    assert json.loads((open_records.folder / "campaign.json").read_text()) == {**META, "finished": "2026-01-02T00:00:00+00:00"}


def test_a_folder_with_a_campaign_is_not_begun_again(open_records):
    open_records.append(Outcome(process(FCN, 0), [window(FCN, 0, 0)]))
    before = text_of(open_records.folder)
    with pytest.raises(WrongUse) as caught:
        Recorder.create(open_records.folder, META)
    assert str(caught.value) == (f"{open_records.folder} holds a campaign already: go on with --resume, "
                                 "or name another folder with --out")
    assert text_of(open_records.folder) == before


def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "campaign"
    with pytest.raises(WrongUse) as caught:
        Recorder.create(folder, META)
    assert str(caught.value) == f"{folder} cannot be written (Not a directory): name another folder with --out"


def test_a_campaign_that_goes_on_with_more_at_a_time_says_the_most_that_got_ready_so(open_records):
    for jobs, most in ((4, 4), (2, 4)):
        resume(open_records.folder, prepare_jobs=jobs, profile=True)
        assert open_records.meta()["suite"] == {**META["suite"], "prepare_jobs": most}


def test_records_of_another_schema_cannot_be_resumed(open_records):
    open_records.update(schema=99)
    with pytest.raises(WrongUse, match=r"campaign\.json: schema 99, this dlbench reads 1; use the dlbench that wrote it"):
        resume(open_records.folder)


def test_a_campaign_goes_on_with_the_data_that_it_began_with_only(tmp_path):
    Recorder.create(tmp_path, {**META, "data_sets": {"mnist": "5,000 digits"}})
    resume_here(tmp_path, data_sets={"mnist": "5,000 digits"})
    with pytest.raises(WrongUse, match="mnist was 5,000 digits, and is MNIST, 60,000 images now: put back what it was, or begin"):
        resume_here(tmp_path, data_sets={"mnist": "MNIST, 60,000 images"})


@pytest.mark.parametrize(("changes", "reason"), [
    ({"variables": {}}, "variables.NCCL_P2P_DISABLE was 1, and is not set now"),
    ({"variables": {**HERE["variables"], "XLA_FLAGS": "--a"}}, "variables.XLA_FLAGS was not set, and is --a now"),
    ({"machine": {**HERE["machine"], "cpu": {"model": "EPYC"}}}, "machine.cpu.model was Xeon, and is EPYC now"),
    ({"machine": {**HERE["machine"], "gpus": GPUS[:1]}}, "machine.gpus.name was NVIDIA H200, NVIDIA H200, and is NVIDIA H200 now"),
    ({"machine": {**HERE["machine"], "gpus": []}}, "machine.gpus.name was NVIDIA H200, NVIDIA H200, and is none now"),
    ({"machine": {**HERE["machine"], "gpus": [{**gpu, "driver": "590.1"} for gpu in GPUS]}},
     "machine.gpus.driver was 580.65, 580.65, and is 590.1, 590.1 now"),
])
def test_a_campaign_goes_on_where_it_began_and_under_the_same_variables_only(tmp_path, changes: dict[str, Any], reason: str):
    Recorder.create(tmp_path, META)
    before = (tmp_path / "campaign.json").read_text()
    with pytest.raises(WrongUse) as caught:
        resume_here(tmp_path, **changes)
    assert str(caught.value) == (f"{tmp_path / 'campaign.json'}: {reason}: put back what it was, "
                                 "or begin another campaign with --out")
    assert (tmp_path / "campaign.json").read_text() == before


def test_what_changes_from_day_to_day_keeps_no_campaign_from_going_on(tmp_path):
    Recorder.create(tmp_path, META)
    resumed = resume_here(tmp_path, machine={"cpu": {"model": "Xeon", "turbo": False}, "load_average": [9.0],
                                             "gpus": [{**gpu, "temperature_celsius": 60} for gpu in GPUS]})
    resumed.append(Outcome(process(FCN, 0), [window(FCN, 0, 0)]))
    assert "resumed" not in reading.read(tmp_path).meta


def test_rows_that_another_node_measured_say_so(tmp_path):
    Recorder.create(tmp_path, {**META, "machine": {**HERE["machine"], "nodes": ["n1"]}})
    resumed = resume_here(tmp_path, machine={**HERE["machine"], "nodes": ["n2"]})
    resumed.append(Outcome(process(FCN, 0), [window(FCN, 0, 0)]))
    assert resumed.meta()["resumed"] == ["on n2 instead of n1"]


def test_what_other_sources_measure_is_noted_once_and_in_every_row(tmp_path):
    Recorder.create(tmp_path, META).append(Outcome(process(FCN, 0), [window(FCN, 0, 0)]))
    resumed = resume_here(tmp_path, source_hash="b" * 64)
    resumed.summarise()
    assert "resumed" not in resumed.meta() and not any("resumed" in reason for reason in reasons(tmp_path))  # nothing ran yet
    for trial, number in ((FCN, 1), (LSTM, 0)):
        resumed.append(Outcome(process(trial, number), [window(trial, number, 0)]))
    resumed.summarise()
    assert resumed.meta()["resumed"] == ["with other sources of dlbench (SHA-256 bbbbbbbbbbbb)"]
    assert [reason.rpartition("; ")[2] for reason in reasons(tmp_path)] == [f"resumed {resumed.meta()['resumed'][0]}"] * 2
    assert ("resumed", resumed.meta()["resumed"][0]) in provenance.facts(reading.read(tmp_path).meta)


def test_what_a_tier_sets_is_one_text_and_empty_from_a_runner_that_does_not_say():
    assert settings_of({"parameters": 3, "settings": ["channels_last", "XLA:\n jit"]}) == \
        "channels_last; XLA: jit"
    assert settings_of({"parameters": 3}) == ""
