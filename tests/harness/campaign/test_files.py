"""Campaigns that train from image files: what the loader gives is compared, and the verdict told."""

import numpy as np
import pytest

from analysis.audit import audit
from analysis.records import manifest
from analysis.report import report
from analysis.trials import loading, summary
from harness.data import image_files
from harness.plan import planner
from harness.plan.suite import Suite
from harness.validation import validate
from tests.harness import campaigns
from tests.slow import slow

SUITE = {"data": "files", "networks": "tiny_cnn", "batches": 8, "processes": 1}
ON_TWO_CORES = planner.Machine("cpu", 2, 0)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Write 41 files: eight batches of eight and one sample are an epoch, in no time."""
    monkeypatch.setattr(image_files, "MOST", 4 * 40)
    monkeypatch.delenv("DLBENCH_DATA", raising=False)


def test_training_from_files_is_verified_and_its_records_hold(stand_in, tmp_path):
    stand_in(good="loading:FromFiles", slow="loading:Slow")
    found = campaigns.run(tmp_path, frameworks=["good", "slow"], **SUITE)
    rows = summary.summarise(found).set_index("framework")
    assert (rows["status"] == "ok").all() and rows.loc["good", "settings"] == "one by one"
    assert (rows["pixel_error"] < 0.01).all() and (rows["loader_seconds"] > 0).all()
    assert rows.loc["slow", "bottleneck"] == "loader-bound"
    assert found.meta["data_sets"] == {"files": "tiny_cnn: PNG files (3x18x18) of drawn samples"}
    losses = found.windows.set_index(["trial", "last_step"])["loss"].unstack("trial").dropna()
    assert np.allclose(losses.iloc[:, 0], losses.iloc[:, 1]) and len(losses) >= 8
    summary.rewrite(tmp_path)
    report.write([tmp_path], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "## Training from image files" in text and "loader-bound" in text
    manifest.write_manifest(tmp_path)
    assert audit.audit(tmp_path) == []
    for column, wrong in (("seconds", 99.0), ("variant", "step")):
        damaged = found.loading.copy()
        damaged.loc[0, column] = wrong
        damaged.to_csv(tmp_path / "loading.csv", index=False)
        assert any(finding.file == "loading.csv" and finding.row for finding in audit.audit(tmp_path))


@pytest.mark.parametrize(("runner", "reason"), [
    ("OtherLabels", "labels from sample 0 of the order on are not those of their images"),
    ("Twice", "was delivered twice in epoch 1, at place 9 instead of sample"),
    ("BlueForRed", "the channels of images are swapped: blue for red"),
    ("DropsLast", "samples were not delivered: the last 1 of epoch 1, a batch that is not full"),
    ("Brighter", "of 255 levels, 0.01 is allowed: another decoding or normalisation"),
    ("Ends", "the loader of files has ended; its order has no end"),
    ("SkipsLater", "samples were not delivered"),
])
def test_a_loader_with_a_fault_is_refused(stand_in, tmp_path, runner, reason):
    stand_in(bad=f"loading:{runner}")
    campaigns.run(tmp_path, frameworks="bad", **SUITE)
    row = campaigns.table(tmp_path)["bad tiny_cnn"]
    assert row["status"] == "failed" and row["reason"].startswith("different: ") and reason in row["reason"]


@pytest.mark.parametrize(("change", "reason"), [
    ({"networks": "tiny_lstm"}, "data: files are images, tiny_lstm takes words"),
    ({"networks": "fcn5"}, "data: files are images of one or three channels, fcn5 takes"),
    ({"mode": "inference"}, "data: files are for training"),
    ({"frameworks": "mxnet"}, "MXNet (Gluon) reads no image files here: configs/frameworks/mxnet.yaml has no key files"),
    ({"frameworks": "tensorflow", "devices": 2}, "data: files feed one device"),
    ({"frameworks": "tensorflow", "until": {"target": 0.9}}, "until: files has no test part here"),
])
def test_what_cannot_train_from_files_is_unsupported(change, reason):
    asked = {"frameworks": "pytorch", "networks": "tiny_cnn", "data": "files", **change}
    suite = validate(asked, Suite, "suite.yaml")
    trial, *_ = planner.make_trials(suite, {suite.frameworks[0]: "1.0"}, ON_TWO_CORES, lambda name: True)
    assert trial.status == "unsupported" and trial.reason.startswith(reason)


@pytest.mark.parametrize(("whole", "loader", "verdict"), [
    (1.04, 0.9, "compute-bound"), (1.05, 2.0, "compute-bound"), (2.0, 1.9, "loader-bound"),
    (1.06, 1.0, "loader-bound"), (1.4, 0.5, "overlap lost"), (float("nan"), 1.0, ""),
])
def test_the_verdict_follows_from_three_times(whole, loader, verdict):
    assert loading.verdict(whole, loader) == verdict


@slow
def test_frameworks_read_the_same_files_in_the_same_order(interpreter_of, tmp_path):
    frameworks = ["pytorch", "tensorflow", "jax"]
    for framework in frameworks:
        interpreter_of(framework)  # skips where it has no environment
    found = campaigns.run(tmp_path, frameworks=frameworks, window_seconds=0.1,
                          **{**SUITE, "networks": "tiny_resnet"})
    rows = summary.summarise(found)
    assert (rows["verified"] == "yes").all() and (rows["pixel_error"] < 0.01).all()
    assert (rows["bottleneck"] != "").all() and not rows["bottleneck"].isna().any()
    losses = found.windows.pivot_table(index="last_step", columns="trial", values="loss").dropna()
    assert losses.shape[1] == 3
    assert (losses.max(axis=1) - losses.min(axis=1) < 1e-3).all()


def test_a_campaign_whose_parts_were_lost_measures_them_again(stand_in, tmp_path):
    stand_in(good="loading:FromFiles")
    campaigns.run(tmp_path, frameworks="good", **SUITE)
    (tmp_path / "loading.csv").unlink()
    again = campaigns.run(tmp_path, resume=True, frameworks="good", **SUITE)
    assert set(again.loading["variant"]) == {"files", "loader", "step"}
    assert "loading.csv were damaged" in again.processes.loc[0, "reason"]
