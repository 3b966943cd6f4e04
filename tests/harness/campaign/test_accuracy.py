"""Campaigns that train until a test accuracy, on MNIST's shipped digits and a network of 800 weights."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

import networks
from analysis.audit import audit
from analysis.records import manifest
from analysis.report import report
from analysis.trials import accuracy, summary
from harness.accuracy import convergence
from harness.data import divided
from harness.errors import WrongUse
from harness.plan import planner
from harness.plan.parts import Until
from harness.plan.suite import Suite
from harness.validation import validate
from networks import catalogue
from networks.builder import Builder
from runners.protocol import Task
from runners.reference import inference
from runners.reference import runner as reference
from tests.conftest import ABLE
from tests.harness import campaigns
from tests.slow import slow

ROOT = Path(__file__).parents[3]
UNTIL = {"target": 0.85, "at_most_epochs": 6, "seeds": 2}
# How the reasons begin that speak of the training, not of the clock.
OF_TRAINING = "(?:different|failed|witness|converges in)"
SMALL = {"networks": "digits", "batches": 100, "data": "mnist", "processes": 2}


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    """Put a small network that MNIST feeds beside those of the catalogue."""
    campaigns.take_networks(monkeypatch)

    @catalogue.network("digits", data_set="mnist", batches=(100,), learning_rate=0.015, small=True)
    def write() -> Builder:
        """One layer."""
        builder = Builder((784,))
        builder.dense(16)
        builder.relu()
        builder.dense(10)
        return builder

    @catalogue.network("norms", data_set="mnist", batches=(100,), learning_rate=0.05, small=True)
    def write_norms() -> Builder:
        """A convolution with batch norm."""
        builder = Builder((1, 28, 28))
        builder.conv(4, 3, stride=4, bias=False)
        builder.batch_norm()
        builder.relu()
        builder.flatten()
        builder.dense(10)
        return builder

    assert networks.get("digits").data_set == networks.get("norms").data_set == "mnist"


def refused(rows):
    """Return why rows are not verified. A busy machine may make a timer implausible too."""
    against = rows.loc[rows["verified"] == "no", "reason"]
    return against.str.extract(f"({OF_TRAINING}.*)", expand=False).dropna().to_dict()


def test_frameworks_that_train_alike_need_the_same_epochs_and_the_records_hold(stand_in, tmp_path):
    stand_in(good="reference:Runner", other="epochs:Counted")
    found = campaigns.run(tmp_path, frameworks=["good", "other"], until=UNTIL, **SMALL)
    rows = summary.summarise(found).set_index("framework")
    assert refused(rows) == {}
    table = found.accuracy
    good, other = (table[table["trial"] == trial].drop(columns=["trial", "seconds"]).reset_index(drop=True)
                   for trial in rows["trial"])
    pd.testing.assert_frame_equal(good, other)
    assert (good["witness_error"] < 1e-4).all() and (good["witness_share"] == 1).all()
    assert set(good["seed"]) == {1, 2}
    last = good.groupby("seed").tail(1)
    assert (last["test_accuracy"] >= 0.85).all() and (last["step"] == 40 * last["epoch"]).all()
    assert (good.drop(last.index)["test_accuracy"] < 0.85).all()
    assert rows.loc["good", "epochs_to_target"] == last["epoch"].median()
    assert rows.loc["good", "seconds_to_target_least"] > 0
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "## Time to accuracy" in text and "Too few seeds to tell" in text
    assert "accuracy_steps.svg" in text and "accuracy_time.svg" in text
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []
    for column, wrong in (("seconds", 99.0), ("step", 7), ("seed", 9), ("test_accuracy", 0.2)):
        damaged = table.copy()
        damaged.loc[len(damaged) - 1, column] = wrong
        damaged.to_csv(tmp_path / "accuracy.csv", index=False)
        named = {finding.column for finding in audit.audit(tmp_path) if finding.file == "accuracy.csv"}
        assert column in named


def test_the_weights_that_reached_the_target_are_kept_with_running_statistics(stand_in, tmp_path):
    stand_in(good="reference:Runner", other="epochs:Decays")
    until = {"target": 0.5, "at_most_epochs": 4, "seeds": 1, "keep_weights": True}
    found = campaigns.run(tmp_path, frameworks=["good", "other"], until=until, **NORMS)
    # The other one is refused, and so are its weights.
    [file] = (tmp_path / "weights").iterdir()
    assert file.name == f"{found.trials[0]['trial']}-0.npz"
    network, kept = networks.get("norms"), np.load(file)
    shapes = {**network.parameter_shapes, "batch_norm1.mean": (4,), "batch_norm1.variance": (4,)}
    assert {name: (array.shape, array.dtype) for name, array in kept.items()} == {
        name: (shape, np.float32) for name, shape in shapes.items()}
    # What they answer is what the last epoch's row says.
    parts = divided.divide("mnist", network)
    built = reference.Runner(Task(network.to_json(), 1, dropout=False))
    inference.load(built, dict(kept))
    answers = inference.outputs_of(built, parts.test_part[0]).argmax(axis=1)
    own = found.accuracy[found.accuracy["trial"] == found.trials[0]["trial"]]
    assert np.mean(answers == parts.test_part[1]) == pytest.approx(own["test_accuracy"].iloc[-1])
    manifest.write_manifest(tmp_path)
    assert f"weights/{file.name}" in (tmp_path / "SHA256SUMS").read_text()


@pytest.mark.parametrize(("runner", "reason"), [
    ("RateDoubles", "different: epoch 2: the steps of this epoch are not those of the network"),
    ("StandsStill", "different: epoch 1: the steps of this epoch are not those of the network"),
    ("Decays", "different: epoch 1: the steps of this epoch are not those of the network: there is a weight decay"),
    ("LosesLastBatch", "different: epoch 1: the steps of this epoch are not those of the network: the gradient"),
])
def test_a_runner_that_trains_otherwise_after_the_proof_is_refused(stand_in, tmp_path, runner, reason):
    stand_in(bad=f"epochs:{runner}")
    campaigns.run(tmp_path, frameworks="bad", until={**UNTIL, "target": 0.99, "seeds": 1},
                  **{**SMALL, "processes": 1})
    row = campaigns.table(tmp_path)["bad digits"]
    assert row["status"] == "failed" and row["reason"].startswith(reason)


SCHEDULED = {"target": 0.8, "at_most_epochs": 8, "seeds": 1, "schedule": [[1, 0.1], [3, 0.05], [8, 0.01]],
             "weight_decay": 5e-4, "augmentation": "flip_and_crop"}
NORMS = {**SMALL, "networks": "norms", "processes": 1}


def test_batch_norm_trains_by_a_schedule_on_augmented_images_and_is_tested_under_proof(stand_in, tmp_path):
    stand_in(good="reference:Runner", other="epochs:Counted")
    until = {**SCHEDULED, "target": 0.6, "at_most_epochs": 12}
    found = campaigns.run(tmp_path, frameworks=["good", "other"], until=until, **NORMS)
    rows = summary.summarise(found).set_index("framework")
    assert (rows["status"] == "ok").all() and refused(rows) == {}
    table = found.accuracy.set_index("epoch")
    assert (table["witness_error"] < 1e-3).all() and (table["witness_share"] == 1).all()
    assert np.allclose(table["learning_rate"], np.interp(table.index, [1, 3, 8], [0.1, 0.05, 0.01]))
    assert table.loc[[1, 2], "evaluation_error"].max() < 1e-5
    manifest.write_manifest(tmp_path)
    assert [finding for finding in audit.audit(tmp_path) if finding.file == "accuracy.csv"] == []


@pytest.mark.parametrize(("runner", "reason"), [
    ("TestsInTraining", "different: the test is not that of the network in inference mode: outputs are off by"),
    ("OtherRunningShare", "different: epoch 1: the steps of this epoch are not those of the network: the move of "),
    ("Decays", "different: epoch 1: the steps of this epoch are not those of the network: there is a weight decay"),
    ("HalfDecay", "different: epoch 1: the steps of this epoch are not those of the network: there is a weight decay"),
    ("MomentumHoldsRate", "different: a change of the learning rate: the steps of this epoch are not those"),
    ("IgnoresRate", "different: epoch 1: the steps of this epoch are not those of the network: the gradient"),
    ("LosesLastBatch", "different: epoch 1: the steps of this epoch are not those of the network: the gradient"),
])
def test_a_runner_that_trains_or_tests_batch_norm_otherwise_is_refused(stand_in, tmp_path, runner, reason):
    stand_in(bad=f"epochs:{runner}")
    campaigns.run(tmp_path, frameworks="bad", until={**SCHEDULED, "target": 0.2}, **NORMS)
    row = campaigns.table(tmp_path)["bad norms"]
    assert row["status"] == "failed" and row["reason"].startswith(reason)


def test_another_running_share_from_the_start_is_refused_by_the_proof(stand_in, tmp_path):
    stand_in(bad="epochs:OtherRunningShareAlways")
    found = campaigns.run(tmp_path, frameworks="bad", until={**SCHEDULED, "target": 0.2}, **NORMS)
    assert campaigns.table(tmp_path)["bad norms"]["verified"] == "no"
    process = found.processes.iloc[0]
    assert process["check"] == "different" and "running statistics differ" in process["check_reason"]


def test_a_target_that_is_not_reached_is_a_failure_with_its_curve(stand_in, tmp_path):
    stand_in(good="reference:Runner")
    found = campaigns.run(tmp_path, frameworks="good", **{**SMALL, "processes": 1},
                          until={"target": 1.0, "at_most_epochs": 2, "seeds": 1})
    row = campaigns.table(tmp_path)["good digits"]
    best = found.accuracy["test_accuracy"].max()
    assert (row["status"], row["reason"]) == (
        "failed", f"target: a test accuracy of 1 was not reached in 2 epochs: the best was {best:.3g}")
    assert found.accuracy["epoch"].tolist() == [1, 2]
    report.write([tmp_path], tmp_path)
    assert "0 of 1" in (tmp_path / "report.md").read_text()


def test_a_runner_that_is_wrong_where_nobody_looks_is_refused_by_its_fewer_epochs(stand_in, tmp_path):
    stand_in(good="reference:Runner", other="epochs:Counted", fast="epochs:FasterInWindows")
    until = {"target": 0.88, "at_most_epochs": 20, "seeds": 6}
    suite = {**SMALL, "processes": 6, "until": until}
    found = campaigns.run(tmp_path, frameworks=["good", "other", "fast"], **suite)
    rows = summary.summarise(found).set_index("framework")
    assert list(refused(rows)) == ["fast"]
    assert "converges in fewer epochs than all other rows on the same seeds" in rows.loc["fast", "reason"]
    pair = replace(found, meta={**found.meta, "trials": [trial for trial in found.trials
                                                         if trial["framework"] != "other"]})
    reasons = {row["framework"]: row["reason"] for row in summary.summarise(pair).to_dict("records")}
    assert "nothing tells which is right" in reasons["good"] and "in fewer epochs" in reasons["fast"]


def keep_epochs(monkeypatch, campaign):
    """Call the script that keeps a campaign's epochs as the reference; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["derive_epochs.py", str(campaign)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / "derive_epochs.py"), run_name="__main__")
    return ended.value.code


def test_a_row_alone_that_trains_on_twice_the_batches_is_refused_by_the_kept_reference(
        stand_in, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(convergence, "KEPT", tmp_path / "kept")
    stand_in(first="reference:Runner", good="epochs:Counted", fast="epochs:TwiceTheBatches")
    suite = {**SMALL, "until": {"target": 0.88, "at_most_epochs": 20, "seeds": 5}}
    long = {**suite, "processes": 10, "until": {**suite["until"], "seeds": 10}}
    campaigns.run(tmp_path / "long", frameworks="first", **long)
    monkeypatch.setattr(convergence, "LEAST_SEEDS", 11)
    assert keep_epochs(monkeypatch, tmp_path / "long") == 2
    assert "10 seeds reached the target; a reference needs 11 or more" in capsys.readouterr().err
    monkeypatch.setattr(convergence, "LEAST_SEEDS", 10)
    assert keep_epochs(monkeypatch, tmp_path / "long") == 0
    said = {}
    for name in ("good", "fast"):
        found = campaigns.run(tmp_path / name, frameworks=name, **{**suite, "processes": 5})
        report.write([tmp_path / name], tmp_path / name, plots=False)
        said[name] = refused(summary.summarise(found)), (tmp_path / name / "report.md").read_text()
    assert said["good"][0] == {} and "no row needs fewer than chance explains" in said["good"][1]
    (reason,) = said["fast"][0].values()
    assert reason.startswith("converges in fewer epochs than the kept reference: ")
    assert "1 of 1 rows need fewer than chance explains" in said["fast"][1]


def test_what_is_kept_holds_for_the_same_settings_alone_and_a_campaign_says_so(tmp_path):
    until = Until(target=0.85)
    settings = convergence.Settings(networks.get("digits"), 100, "fp32", "mnist", until)
    trial = SimpleNamespace(network="digits", global_batch=100, precision="fp32", data="mnist")
    assert convergence.recorded([trial], None, tmp_path) == []
    (found,) = convergence.recorded([trial], until, tmp_path)
    assert found["reason"] == "no reference run is kept for these settings"
    epochs = {"good 1.0": dict.fromkeys(range(10), 3)}
    file = convergence.keep(settings, "digits", epochs, tmp_path)
    (found, same) = (*convergence.recorded([trial], until, tmp_path),
                     *convergence.recorded([trial], Until(target=0.85, seeds=9, at_most_epochs=2), tmp_path))
    assert found == same and found["epochs"]["good 1.0"]["9"] == 3 and found["at_most_epochs"] == 40
    (other,) = convergence.recorded([trial], Until(target=0.85, schedule=[[1, 0.1]]), tmp_path)
    assert "had another network, data set or schedule" in other["reason"] and "epochs" not in other
    file.write_text("[]")
    with pytest.raises(WrongUse, match=r"not a file of reference epochs .*derive_epochs.py"):
        convergence.recorded([trial], until, tmp_path)


def test_the_hash_changes_with_each_thing_that_epochs_depend_on(monkeypatch):
    until = Until(target=0.85)
    given = {"network": networks.get("digits"), "batch": 100, "precision": "fp32", "data": "mnist", "until": until}
    hashes = {convergence.Settings(**{**given, **change}).depends_on for change in (
        {}, {"batch": 50}, {"precision": "bf16"}, {"network": replace(given["network"], learning_rate=0.1)},
        *({"until": until.model_copy(update=change)} for change in (
            {"target": 0.8}, {"schedule": ((1, 0.1),)}, {"weight_decay": 1e-4})))}
    monkeypatch.setattr(divided, "SEED", 1)
    divided._split.cache_clear()
    hashes.add(convergence.Settings(**given).depends_on)
    divided._split.cache_clear()
    assert len(hashes) == 8


@pytest.mark.parametrize("file", sorted(convergence.KEPT.glob("*.json")), ids=lambda file: file.stem)
def test_kept_epochs_hold_for_a_suite_of_ours(file):
    kept = json.loads(file.read_text())
    suites = [yaml.safe_load(each.read_text()) for each in (ROOT / "configs").glob("accuracy*.yaml")]
    held = [convergence.Settings(networks.get(kept["network"]), kept["batch"], kept["precision"], kept["data"],
                                 Until.model_validate(suite["until"])).depends_on
            for suite in suites if suite["network"] == kept["network"]]
    assert kept["depends_on"] in held, f"run {convergence.DERIVE} again"
    assert all(len(seeds) >= convergence.LEAST_SEEDS for seeds in kept["epochs"].values())


@slow
def test_frameworks_train_batch_norm_alike_by_a_schedule(interpreter_of, tmp_path):
    frameworks = ["pytorch", "tensorflow", "jax"]
    for framework in frameworks:
        interpreter_of(framework)  # skips where it has no environment
    # Without AVX-512 PyTorch's and TensorFlow's gradients of convolutions in bf16 are some per cent off, and are refused.
    precisions = ["fp32", *(["bf16"] if "avx512bw" in ABLE else [])]
    found = campaigns.run(tmp_path, frameworks=frameworks, **NORMS, precisions=precisions,
                          until={**SCHEDULED, "target": 0.6, "at_most_epochs": 12})
    rows = summary.summarise(found)
    assert (rows["status"] == "ok").all() and refused(rows) == {}
    assert (found.accuracy["witness_error"] < 0.01).all()
    exact = found.accuracy[found.accuracy["trial"].str.contains("fp32") & (found.accuracy["epoch"] == 2)]
    assert len(exact) == 3 and exact["test_loss"].max() - exact["test_loss"].min() < 1e-3


@slow
def test_frameworks_train_lenet5_to_the_same_accuracy_in_as_many_epochs(interpreter_of, tmp_path):
    frameworks = ["pytorch", "tensorflow", "jax", "mxnet"]
    for framework in frameworks:
        interpreter_of(framework)  # skips where it has no environment
    found = campaigns.run(tmp_path, frameworks=frameworks, networks="lenet5", batches=64, data="mnist",
                          until={"target": 0.9, "at_most_epochs": 8, "seeds": 2})
    rows = summary.summarise(found).set_index("framework")
    assert (rows["status"] == "ok").all() and refused(rows) == {}
    assert (found.accuracy["witness_error"].dropna() < 1e-3).all()
    epochs = accuracy.epochs(found, [trial["trial"] for trial in found.trials])
    assert epochs.shape == (2, 4)
    # A last epoch may end within rounding of the target.
    assert (epochs.max(axis=1) - epochs.min(axis=1) <= 1).all()


def test_a_resumed_campaign_keeps_its_target_and_its_seeds(stand_in, tmp_path):
    stand_in(good="reference:Runner")
    whole = campaigns.run(tmp_path, frameworks="good", until=UNTIL, **SMALL)
    processes = (tmp_path / "processes.csv").read_text().splitlines(keepends=True)
    (tmp_path / "processes.csv").write_text("".join(processes[:-1]))
    again = campaigns.run(tmp_path, resume=True, frameworks="good", until=UNTIL, **SMALL)
    timeless = ["process", "seed", "epoch", "step", "test_accuracy"]
    pd.testing.assert_frame_equal(whole.accuracy[timeless], again.accuracy[timeless])
    with pytest.raises(WrongUse, match=r"until is .* now and was"):
        campaigns.run(tmp_path, resume=True, frameworks="good", until={**UNTIL, "target": 0.8}, **SMALL)


@pytest.mark.parametrize(("change", "reason"), [
    ({"mode": "inference"}, "until: a trained network is not trained again"),
    ({"devices": 2}, "until: trains on one device"),
    ({"phases": True}, "phases: is for training that is timed alone"),
    ({"processes": 3}, "processes: 3 of them for 5 seeds"),
    ({"until": {"target": 2}}, "until.target"),
])
def test_what_does_not_go_with_a_target_is_refused(change, reason):
    with pytest.raises(WrongUse, match=reason.split(":")[0]) as refused:
        validate({"until": {"target": 0.9}, **change}, Suite, "suite.yaml")
    assert reason in str(refused.value) and str(refused.value).startswith("suite.yaml")


@pytest.mark.parametrize(("change", "reason"), [
    ({"networks": "resnet8", "data": "cifar10"}, "until: cifar10 has no test part here"),
    ({"data": "host"}, "until: host has no test part here"),
    ({"until": {"target": 0.9, "weight_decay": 1e-4}, "precisions": "fp16"}, "until: fp16 scales the loss"),
    ({"until": {"target": 0.9, "augmentation": "flip_and_crop"}}, "until.augmentation: digits takes numbers"),
    ({"networks": "fcn5", "until": {"target": 0.9, "keep_weights": True}}, "until.keep_weights: the weights of fcn5 take "),
])
def test_what_cannot_be_tested_is_unsupported(change, reason):
    suite = validate({"until": {"target": 0.9}, "networks": "digits", "frameworks": "pytorch", "data": "mnist",
                      **change}, Suite, "suite.yaml")
    trial, *_ = planner.make_trials(suite, {"pytorch": "2.13.0"}, planner.Machine("cpu", 2, 0), lambda name: True)
    assert trial.status == "unsupported" and trial.reason.startswith(reason)


def test_the_seeds_of_a_suite_are_its_processes():
    assert validate({"until": {"target": 0.9, "seeds": 7}}, Suite, "suite.yaml").processes == 7


def test_the_sentence_tells_shifted_epochs_from_equal_ones():
    equal = pd.DataFrame({"a": [3, 4, 5, 4, 3], "b": [3, 4, 5, 4, 3], "c": [3, 4, 5, 4, 4]})
    assert accuracy.sentence(equal).startswith("The rows need the same number of epochs as far as this shows")
    shifted = equal.assign(c=equal["c"] + 2)
    assert accuracy.sentence(shifted).startswith("The rows do not need the same number of epochs")
    assert accuracy.sentence(equal[["a", "b"]]).startswith("Too few seeds to tell")
    assert np.isclose(shifted["c"].mean() - shifted["a"].mean(), 2.2)


def test_the_command_line_refuses_a_comparison_and_several_devices_with_file_and_key(stand_in, dlbench, tmp_path):
    stand_in(good="reference:Runner")
    suite, release = tmp_path / "suite.yaml", f"good=={np.__version__}"
    suite.write_text("frameworks: good\nnetwork: digits\nuntil: {target: 0.9}\n")
    compared = dlbench("compare", release, release, "--suite", str(suite))
    assert compared.code == 2 and "suite.yaml: until: a comparison times steps alone; leave the key out" in compared.err
    several = dlbench("run", str(suite), "devices=2")
    assert several.code == 2 and "suite.yaml: until: trains on one device; write devices: 1" in several.err
