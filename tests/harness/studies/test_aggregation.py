"""`dlbench study aggregation`: groups of devices, the sweep of their links, and a page, with workers whose links are known."""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.aggregation import plots
from analysis.audit import audit
from analysis.records import manifest, study_reader
from harness.campaign import campaign
from harness.campaign.session import Plan
from harness.cli import main
from harness.cli.studies import study
from harness.environments import recipes, store
from harness.environments.recipes import Framework, Parallel
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.plan.planner import Machine, Trial, make_trials
from harness.studies import aggregation
from harness.studies.aggregation import Effort, Group, groups_of, sweep

EFFORT = Effort(processes=3, windows=2, window_seconds=0.001, largest_bytes=2**20)
RECORDED = Path(__file__).parents[3] / "results" / "cpu-links-2026-11-21"
WORDS = ["study", "aggregation", "--device", "cpu", "--processes", "1", "--windows", "2", "--largest", "1"]


def trial(devices, kind="cpu", **changes):
    return Trial(framework="pytorch", release=np.__version__, network="tiny_fcn", batch=4, devices=devices, device_kind=kind,
                 threads=1, precision="fp32", tuning="stock", data="device", learning_rate=0.1, parameters=1, flops_per_step=1,
                 dropout=False, processes_planned=1, **changes)


@pytest.fixture
def simulated(monkeypatch, made_up_clock):
    """Let simulated links stand in for PyTorch's, which one process drives."""
    recipe = {"python": "3.11", "packages": {"cpu": ["numpy"]}, "unsupported": {"cuda": "NumPy computes on the CPU"}}
    stand_in = Framework(title="PyTorch", runner="tests.faults.reference", distributions=["numpy"], default=np.__version__,
                         releases={np.__version__: recipe},
                         parallel=Parallel(kind="controller", strategies={"cpu": ["sums"]}, reasons={"cuda": "no GPU"}))
    here = Environment("pytorch", np.__version__, "cpu", Path(sys.executable), "key", "3.11", (), {}, "built")
    monkeypatch.setattr(recipes, "load", lambda name, folder=None: stand_in)
    monkeypatch.setattr(store, "build", lambda *_: here)
    monkeypatch.setattr(aggregation, "MODULE", "tests.faults.studies.links")
    return here


STUDIES = {}


@pytest.fixture
def studied(simulated, tmp_path, tmp_path_factory):
    """Lend a copy of a study that the command makes once: `studied("1,2")` has groups of one and two devices."""
    def lend(devices):
        if devices not in STUDIES:
            folder = tmp_path_factory.mktemp("studies") / "study"
            made = CliRunner().invoke(main.app, [*WORDS, "--devices", devices, "--out", str(folder)])
            assert made.exit_code == 0, made.output
            STUDIES[devices] = folder
        return shutil.copytree(STUDIES[devices], tmp_path / "study")

    return lend


def rows_of(folder):
    with (folder / "links.csv").open() as file:
        return list(csv.DictReader(file))


def test_gpus_are_swept_with_and_without_their_direct_path_but_one_alone_has_none():
    assert [group.name for group in groups_of([trial(1, "cuda"), trial(2, "cuda"), trial(2)])] == [
        "1 x cuda, default", "2 x cuda, default", "2 x cuda, p2p_off", "2 x cpu, default"]


@pytest.mark.parametrize("name, value", [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")])
def test_gpus_that_are_kept_apart_from_outside_are_not_swept(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(WrongUse, match=f"{name}={value} keeps the GPUs apart.*unset {name}"):
        study._refuse_forced_wire("cuda")
    study._refuse_forced_wire("cpu")
    monkeypatch.delenv(name)
    study._refuse_forced_wire("cuda")


def test_sizes_grow_fourfold_up_to_the_largest():
    assert Effort(largest_bytes=2**19).sizes("send") == [15876, 63504, 254016]
    assert Effort().sizes("send")[-1] == 4 * 63**2 * 4**7


def test_a_sum_of_several_buffers_is_measured_up_to_what_a_strategy_adds():
    assert Effort(largest_bytes=2**28).sizes("host_sum_all")[-1] > (3 + 1 / 3) * 2**28  # of three devices


def test_each_link_and_size_of_each_process_has_its_windows(simulated, tmp_path):
    (tmp_path / "logs").mkdir()
    sweep([Group("default", trial(2))], simulated, EFFORT, tmp_path, lambda _: None)
    rows = [row for row in rows_of(tmp_path) if row["link"] == "send"]
    assert [(row["process"], row["bytes"], row["window"]) for row in rows] == [
        (str(process), str(size), str(window)) for process in range(3) for size in EFFORT.sizes("send") for window in range(2)]
    for row in rows:
        assert float(row["stop"]) - float(row["start"]) >= EFFORT.window_seconds
        assert float(row["seconds"]) / int(row["steps"]) == pytest.approx(2e-5 + int(row["bytes"]) / 4e10)  # without pauses
    assert [row["reason"] for row in rows_of(tmp_path) if row["link"] == "to_host"] == ["no host to copy to"] * 3


def test_on_another_wire_only_what_goes_over_it_is_measured(simulated, tmp_path):
    (tmp_path / "logs").mkdir()
    sweep([Group("p2p_off", trial(2))], simulated, EFFORT, tmp_path, lambda _: None)
    assert {row["link"] for row in rows_of(tmp_path)} == {"send", "shift", "pair", "all_reduce"}


def test_a_group_that_cannot_be_is_a_row_and_costs_no_other(simulated, tmp_path):
    (tmp_path / "logs").mkdir()
    refused = trial(8, status="unsupported", reason="8 devices asked for, 2 are here")
    groups = [Group("default", refused), Group("default", trial(4)), Group("default", trial(2))]
    sweep(groups, simulated, Effort(1, 1, 0.001, 2**16), tmp_path, lambda _: None)
    rows = rows_of(tmp_path)
    told = {(row["devices"], row["link"], row["status"], row["reason"]) for row in rows if row["status"] != "ok"}
    assert told >= {("8", "", "unsupported", "8 devices asked for, 2 are here"),
                    ("4", "", "unsupported", "this worker has links for two devices")}
    assert {row["devices"] for row in rows if row["status"] == "ok"} == {"2"}


def test_the_command_leaves_records_that_fit_and_a_page(studied):
    study = studied("1,2")
    fits = pd.read_csv(study / "fits.csv").set_index(["devices", "link"])
    assert fits.loc[(2, "shift"), "bytes_per_second"] == pytest.approx(3e10)
    predicted = pd.read_csv(study / "predictions.csv").set_index(["network", "strategy", "devices"])
    size = 4 * 14_205_962
    ring = 2 * 3e-5 + size / 3e10 + 4e-6 + 0.5 * size / 9e11 + 2 * 3e-6 + 1.5 * size / 1.3e12
    assert predicted.loc[("fcn5", "ring", 2), "predicted_seconds"] == pytest.approx(ring, rel=1e-4)
    assert predicted.loc[("fcn5", "gather", 2), "reason"] == "no fit of fan_in, fan_out"
    assert "no host to copy to" in (study / "report.html").read_text()
    assert manifest.check_manifest(study) == []


def test_a_study_that_is_there_is_not_written_over(simulated, tmp_path):
    (tmp_path / "study.json").write_text("{}")
    found = CliRunner().invoke(main.app, [*WORDS, "--out", str(tmp_path)])
    assert "holds a study already" in str(found.exception)


def test_a_campaign_that_is_not_there_is_refused_before_anything_is_measured(simulated, tmp_path):
    found = CliRunner().invoke(main.app, [*WORDS, str(tmp_path / "nowhere"), "--out", str(tmp_path / "study")])
    assert "nowhere/campaign.json: no such file" in str(found.exception)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(("campaign", "words"), [
    ("h200-caffenet-googlenet-vgg16-2026-11-21", "no row on several devices ended well, so there is no aggregation to explain"),
    ("h200x2-traced-2026-11-22", "it ran on several devices of cuda, and these links are those of cpu"),
])
def test_a_campaign_that_these_links_explain_nothing_of_is_refused(simulated, tmp_path, campaign, words):
    recorded = RECORDED.parent / campaign
    before = CliRunner().invoke(main.app, [*WORDS, str(recorded), "--out", str(tmp_path / "study")])
    assert f"{campaign}: {words}" in str(before.exception) and not (tmp_path / "study").exists()
    shutil.copytree(RECORDED, tmp_path / "study")
    page = (tmp_path / "study" / "study.json").read_bytes()
    again = CliRunner().invoke(main.app, ["study", "aggregation", str(recorded), "--again", str(tmp_path / "study")])
    assert f"{campaign}: {words}" in str(again.exception) and (tmp_path / "study" / "study.json").read_bytes() == page


def test_a_study_tells_how_it_was_measured(studied):
    page = json.loads((studied("1,2") / "study.json").read_text())
    assert page["settings"] == {"devices": [1, 2], "largest_mib": 1}
    assert page["effort"] == {"processes": 1, "windows": 2, "window_seconds": 0.02, "largest_bytes": 2**20, "seed": 1, "links": []}
    assert (page["suite"]["processes"], page["suite"]["windows"], page["suite"]["window_seconds"]) == (1, 2, 0.02)


def test_a_machine_without_any_group_that_was_asked_for_is_told_so(simulated, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "prepare", without_gpu)
    found = CliRunner().invoke(main.app, [*WORDS[:2], "--device", "cuda", "--out", str(tmp_path / "study")])
    assert str(found.exception) == ("no group of devices can be measured here: no NVIDIA GPU answers on this machine; "
                                    "choose others with --devices and --device")
    assert not (tmp_path / "study").exists()


def without_gpu(suite, file, allow_dirty):
    """The plan on a machine that has none."""
    planned = make_trials(suite, {"pytorch": np.__version__}, Machine("cuda", cores=2, devices=0), lambda name: False)
    return Plan(suite, file, planned, {"gpus": [], "cpu": {"allowed": 2}}, "cuda")


def test_a_study_is_derived_again_without_measuring_and_gives_the_same(studied, tmp_path, monkeypatch):
    studied("2")
    fits = (tmp_path / "study" / "fits.csv").read_text()
    (tmp_path / "study" / "fits.csv").unlink()
    monkeypatch.setattr(aggregation, "MODULE", "tests.faults.processes.wire:Raises")  # nobody is to be asked
    found = CliRunner().invoke(main.app, ["study", "aggregation", "--again", str(tmp_path / "study")])
    assert (found.exit_code, (tmp_path / "study" / "fits.csv").read_text()) == (0, fits)
    for option in (["--out", str(tmp_path / "other")], ["--devices", "2"], ["--processes", "5"], ["--largest", "64"]):
        page = (tmp_path / "study" / "study.json").read_bytes()
        refused = CliRunner().invoke(main.app, ["study", "aggregation", "--again", str(tmp_path / "study"), *option])
        assert f"measures nothing, so {option[0]} cannot go with it" in str(refused.exception)
        assert (tmp_path / "study" / "study.json").read_bytes() == page and not (tmp_path / "other").exists()
    refused = CliRunner().invoke(main.app, ["study", "aggregation", "--again", str(tmp_path)])
    assert "no study of aggregation" in str(refused.exception)


def test_devices_are_whole_numbers(simulated, tmp_path):
    found = CliRunner().invoke(main.app, [*WORDS, "--devices", "two", "--out", str(tmp_path)])
    assert "--devices two: write whole numbers" in str(found.exception)


@pytest.mark.parametrize(("table", "line", "column"), [
    ("links", 5, "seconds"), ("fits", 2, "residual"), ("predictions", 3, "predicted_seconds")])
def test_an_audit_derives_a_study_from_its_links_and_names_what_was_changed(studied, table, line, column):
    study = studied("2")
    assert audit.audit(study) == []
    change(study / f"{table}.csv", line, column)
    manifest.write_manifest(study)
    found = {(finding.file, finding.row, finding.column) for finding in audit.audit(study)}
    if table == "links":
        assert "residual" in {column for file, _, column in found if file == "fits.csv"}
    else:
        assert found == {(f"{table}.csv", f"line {line}", column)}


@pytest.mark.parametrize("beside", [True, False])
def test_an_audit_makes_predictions_again_where_their_campaigns_lie_beside_the_study_and_else_says_so(tmp_path, beside):
    study = shutil.copytree(RECORDED, tmp_path / "study")
    change(study / "predictions.csv", 2, "error")
    manifest.write_manifest(study)
    if beside:
        (tmp_path / "cpu-strategies-2026-11-21").symlink_to(RECORDED.parent / "cpu-strategies-2026-11-21")
    found = CliRunner().invoke(main.app, ["audit", str(study)])
    unchecked = "predictions.csv, overlap.csv and what_if.csv not checked: not beside it are cpu-strategies-2026-11-21"
    assert (found.exit_code, "predictions.csv, line 2, error: expected" in found.output) == (int(beside), beside)
    assert (unchecked in found.output) is not beside


def change(file, line, column):
    """Make a number 1.5 times as large; the header is line 1."""
    with file.open(newline="") as table:
        rows = list(csv.reader(table))
    place = rows[0].index(column)
    rows[line - 1][place] = str(1.5 * float(rows[line - 1][place]))
    with file.open("w", newline="") as table:
        csv.writer(table, lineterminator="\n").writerows(rows)


def test_several_nodes_are_a_wire_of_their_own():
    planned = aggregation.plan("1", "cpu", {}, False, {})
    [one] = planned.trials
    two = replace(one, nodes=2, devices=2, ranks=2)
    assert [(group.wire, group.trial.devices) for group in groups_of([one, two])] == [("default", 1), ("nodes", 2)]


def test_only_the_links_that_are_named_are_measured(simulated, tmp_path):
    folder = tmp_path / "some"
    made = CliRunner().invoke(main.app, [*WORDS, "--devices", "2", "--links", "all_reduce,device_sum", "--out", str(folder)])
    assert made.exit_code == 0, made.output
    assert {row["link"] for row in rows_of(folder)} == {"all_reduce", "device_sum"}


def test_a_link_that_there_is_not_is_refused_with_the_closest(simulated, tmp_path):
    made = CliRunner().invoke(main.app, [*WORDS, "--links", "all_reduced", "--out", str(tmp_path / "some")])
    assert isinstance(made.exception, WrongUse) and "did you mean all_reduce?" in str(made.exception)


def test_every_link_has_words_and_the_other_way_round():
    own = {study_reader.own_sum(name) for name in study_reader.OWN_SUMS}
    assert {*study_reader.LINKS, *own} == set(plots.WORDS)


def test_other_frameworks_have_groups_between_nodes_only():
    others = [replace(trial(2, nodes=2), framework="jax"), replace(trial(1), framework="jax")]
    assert [group.name for group in groups_of([trial(2), trial(2, nodes=2), *others])] == [
        "2 x cpu, default", "2 x cpu, nodes", "jax, 2 x cpu, nodes"]
