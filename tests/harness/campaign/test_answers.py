"""Campaigns in inference with trained weights: accuracy on a test part, and what INT8 costs of it."""

import gzip

import numpy as np
import pandas as pd
import pytest

import networks
from analysis.audit import audit
from analysis.records import packed, reader
from analysis.report import report
from analysis.trials import summary
from harness.data import arrays, divided
from harness.errors import WrongUse
from harness.plan.suite import Suite, load_suite
from harness.validation import validate
from networks import catalogue
from networks.builder import Builder
from tests.conftest import needs_vnni
from tests.harness import campaigns
from tests.slow import slow

SERVED = {"mode": "inference", "networks": "digits", "data": "mnist", "batches": 32, "processes": 1}


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    """Put a small network that MNIST feeds beside those of the catalogue."""
    campaigns.take_networks(monkeypatch)

    @catalogue.network("digits", data_set="mnist", batches=(100,), learning_rate=0.015, small=True)
    def write() -> Builder:
        """Random features and a layer that is fitted to them."""
        builder = Builder((784,))
        builder.dense(64)
        builder.relu()
        builder.dense(10)
        return builder


@pytest.fixture
def weights(tmp_path):
    """A file of weights that answer most digits: the last layer is fitted by least squares."""
    network = networks.get("digits")
    found = arrays.draw_weights(network, 1)
    parts = divided.divide("mnist", network)
    samples = parts.training_samples(2000, 0)
    labels = parts.training.images[1][np.random.default_rng(0).choice(parts.count, 2000, replace=False)]
    hidden = np.maximum(samples @ found["dense1.weight"].T + found["dense1.bias"], 0)
    fitted = np.linalg.lstsq(np.column_stack([hidden, np.ones(2000)]), np.eye(10)[labels], rcond=None)[0]
    found["dense2.weight"], found["dense2.bias"] = (part.astype(np.float32) for part in (fitted[:-1].T, fitted[-1]))
    np.savez(tmp_path / "digits.npz", **found)
    return {"digits": tmp_path / "digits.npz"}


def test_trained_weights_answer_the_test_part_and_the_records_hold(stand_in, weights, tmp_path, dlbench):
    stand_in(good="engines:Good")
    out = tmp_path / "out"
    found = campaigns.run(out, frameworks="good", precisions=["fp32", "int8"], weights=weights, **SERVED)
    rows = summary.summarise(found).set_index("precision")
    assert (rows["test_samples"] == 1000).all() and (rows["reference_accuracy"] > 0.75).all()
    fp32, int8 = rows.loc["fp32"], rows.loc["int8"]
    assert fp32["test_accuracy"] == fp32["reference_accuracy"] == int8["reference_accuracy"]
    assert fp32["accuracy_lost"] == 0 and fp32["accuracy_lost_low"] < 0 < fp32["accuracy_lost_high"] < 0.01
    assert int8["accuracy_lost"] == pytest.approx(int8["reference_accuracy"] - int8["test_accuracy"])
    assert int8["accuracy_lost_low"] < 0 < int8["accuracy_lost_high"] < 0.02 and int8["top1_agreement"] > 0.9
    assert found.processes["check"].tolist() == ["same", "same"]
    # Of the weights that were given, not of drawn ones.
    assert found.meta["weights"]["digits"]["file"] == found.meta["suite"]["weights"]["digits"] == "digits.npz"
    assert "1,000 of all classes to test" in found.meta["data_sets"]["mnist to test"]
    with gzip.open(out / "answers.csv.gz", "rt") as file:
        assert file.readline() == "trial,process,sample,label,answer,reference\n"
    labels = divided.divide("mnist", networks.get("digits")).test.images[1]
    own = found.answers[found.answers["trial"] == found.trials[0]["trial"]]
    assert own["sample"].tolist() == list(range(1000)) and own["label"].tolist() == labels.tolist()
    report.write([out], out)
    text = (out / "report.md").read_text()
    assert "## Accuracy on the test part" in text and "| 0.00 (-0." in text
    assert "with the trained weights that the suite names for digits" in text
    assert [finding for finding in audit.audit(out) if finding.file == "answers.csv"] == []
    table = found.answers.copy()
    table.loc[table["answer"] == 3, "answer"] = 4
    table.to_csv(out / "answers.csv", index=False)
    assert ("answers.csv", "answer") in {(each.file, each.column) for each in audit.audit(out)}


def test_an_engine_that_is_wrong_for_three_samples_of_a_hundred_is_refused(stand_in, weights, tmp_path):
    stand_in(bad="engines:WrongForSome")
    found = campaigns.run(tmp_path / "out", frameworks="bad", precisions=["fp32", "int8"], weights=weights, **SERVED)
    for process in found.processes.to_dict("records"):
        # The few rows of the proof do not meet the fault, all answers do.
        assert process["check"] == "different" and process["output_error"] < process["output_limit"]
        assert process["check_reason"].startswith("in answers to the test part: ")
        assert "of 1,000 outputs are off by more than" in process["check_reason"]
        assert process["test_accuracy"] < process["reference_accuracy"] - 0.015
    rows = summary.summarise(found)
    assert rows["verified"].tolist() == ["no", "no"]
    # And it shows: the interval of what was lost leaves zero out.
    assert (rows["accuracy_lost_low"] > 0).all()


def test_a_campaign_that_lost_answers_measures_them_again_and_other_weights_end_it(stand_in, weights, tmp_path):
    stand_in(good="engines:Good")
    out = tmp_path / "out"
    whole = campaigns.run(out, frameworks="good", weights=weights, **SERVED)
    packed.unpack(out / "answers.csv")
    lines = (out / "answers.csv").read_text().splitlines(keepends=True)
    (out / "answers.csv").write_text("".join(lines[:-5]))
    again = campaigns.run(out, resume=True, frameworks="good", weights=weights, **SERVED)
    assert again.processes["reason"].tolist() == ["measured again: its rows in answers.csv were damaged"]
    pd.testing.assert_frame_equal(again.answers, whole.answers)
    assert not (out / "answers.csv").exists()
    with np.load(weights["digits"]) as loaded:
        changed = {**loaded, "dense2.bias": np.zeros(10, np.float32)}
    np.savez(weights["digits"], **changed)
    with pytest.raises(WrongUse, match=r"weights.digits had the SHA-256 \w{64}, and digits.npz is another file now"):
        campaigns.run(out, resume=True, frameworks="good", weights=weights, **SERVED)


def test_without_labels_trained_weights_are_proven_and_nothing_is_answered(stand_in, weights, tmp_path):
    stand_in(good="engines:Good")
    found = campaigns.run(tmp_path / "out", frameworks="good", weights=weights, **{**SERVED, "data": "host"})
    assert found.processes["check"].tolist() == ["same"] and found.processes["test_samples"].isna().all()
    assert not list((tmp_path / "out").glob("answers*"))
    assert "test_accuracy" not in (tmp_path / "out" / "trials.csv").read_text()


def test_weights_whose_outputs_are_all_alike_prove_nothing(stand_in, weights, tmp_path):
    stand_in(good="engines:Good")
    shapes = networks.get("digits").state_shapes
    np.savez(weights["digits"], **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    campaigns.run(tmp_path / "out", frameworks="good", weights=weights, **SERVED)
    row = campaigns.table(tmp_path / "out")["good digits"]
    assert (row["status"], row["verified"]) == ("failed", "no") and "do not depend on the input" in row["reason"]


@pytest.mark.parametrize(("keys", "says"), [
    ({"mode": "training"}, "weights: training begins with drawn weights; write mode: inference"),
    ({"networks": "lenet5"}, "weights: unknown network digits; Known: lenet5"),
])
def test_weights_that_no_trial_reads_are_refused(keys, says):
    with pytest.raises(WrongUse) as refused:
        validate({"mode": "inference", "networks": "digits", "weights": {"digits": "a.npz"}, **keys}, Suite, "suite.yaml")
    assert says in str(refused.value)


def test_files_are_seen_from_the_suites_folder_and_a_wrong_one_ends_the_command(stand_in, dlbench, weights, tmp_path):
    stand_in(good="engines:Good")
    (tmp_path / "suites").mkdir()
    suite = tmp_path / "suites" / "suite.yaml"
    suite.write_text("mode: inference\nframeworks: good\nnetworks: digits\ndata: mnist\nweights: {digits: ../digits.npz}\n")
    assert load_suite(suite).weights["digits"].resolve() == weights["digits"]
    assert dlbench("run", str(suite), "--dry-run", "--out", str(tmp_path / "out")).code == 0
    with np.load(weights["digits"]) as loaded:
        np.savez(weights["digits"], **{name: array for name, array in loaded.items() if name != "dense1.bias"})
    wrong = dlbench("run", str(suite), "--out", str(tmp_path / "out"))
    assert wrong.code == 2 and f"{suite}: weights.digits: " in wrong.err and not (tmp_path / "out").exists()
    assert "digits.npz: holds no array dense1.bias, one of 1 that digits needs" in wrong.err
    absent = dlbench("run", str(suite), "weights.digits=nowhere.npz")
    assert absent.code == 2 and "nowhere.npz: no such file; name one that until.keep_weights wrote" in absent.err


@slow
@needs_vnni
def test_lenet5_that_pytorch_trained_keeps_its_accuracy_in_two_engines_and_in_int8(interpreter_of, tmp_path):
    for framework in ("pytorch", "onnxruntime", "openvino"):
        interpreter_of(framework)  # skips where it has no environment
    trained = campaigns.run(tmp_path / "trained", frameworks="pytorch", networks="lenet5", batches=64, data="mnist",
                            until={"target": 0.9, "at_most_epochs": 8, "seeds": 1, "keep_weights": True}, processes=1)
    [file] = (tmp_path / "trained" / "weights").iterdir()
    found = campaigns.run(tmp_path / "served", frameworks=["pytorch", "onnxruntime", "openvino"],
                          precisions=["fp32", "int8"], weights={"lenet5": file}, **{**SERVED, "networks": "lenet5"})
    rows = summary.summarise(found).set_index(["framework", "precision"])
    rows = rows[rows["status"] == "ok"]
    assert len(rows) == 5 and found.processes["check"].tolist() == 5 * ["same"]
    # The test part is that of the training, whose last epoch had this accuracy.
    assert (rows["reference_accuracy"] == trained.accuracy["test_accuracy"].iloc[-1]).all()
    fp32 = rows.xs("fp32", level="precision")
    assert (fp32["test_accuracy"] == fp32["reference_accuracy"]).all()
    assert ((rows["accuracy_lost_low"] <= 0) & (rows["accuracy_lost_high"] >= 0)).all()
    assert reader.read(tmp_path / "served").answers.groupby("trial").size().tolist() == 5 * [1000]
