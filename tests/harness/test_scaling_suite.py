"""configs/scaling-cpu.yaml in its smallest form: two CPU devices in every framework, and all train the same network."""

import csv
from pathlib import Path

import pytest

from harness import campaign, environments, frameworks
from harness.plan import Machine, make_trials
from harness.suite import load_suite

SUITE = Path(__file__).parents[2] / "configs" / "scaling-cpu.yaml"


def test_every_row_of_the_suite_can_be_trained():
    suite = load_suite(SUITE)
    releases = {name: frameworks.load(name).default for name in suite.frameworks}
    planned = make_trials(suite, releases, Machine("cpu", cores=2, devices=0), lambda name: False)
    assert {trial.status for trial in planned} == {"planned"}
    rows = {(trial.framework, trial.network, trial.devices, trial.global_batch // trial.batch) for trial in planned}
    assert len(rows) == 6 * 2 * 3
    assert len(planned) == 6 * 2 * (1 + 2 * 2)  # on one device weak and strong are one


def test_caffe_is_refused_in_its_own_words():
    suite = load_suite(SUITE, ["frameworks=caffe", "devices=2", "networks=fcn5", "scaling=weak"])
    planned = make_trials(suite, {"caffe": "1.0.0"}, Machine("cpu", cores=2, devices=0), lambda name: False)
    assert [trial.status for trial in planned] == ["unsupported"]
    assert planned[0].reason.endswith('"Multi-GPU execution not available - rebuild with USE_NCCL"')


def test_on_two_devices_all_frameworks_are_verified_against_each_other(tmp_path):
    suite = load_suite(SUITE, ["networks=tiny_fcn", "batch=8", "devices=2", "scaling=weak", "processes=1", "windows=1",
                               "window_seconds=0.01", "peaks=false"])
    missing = [name for name in suite.frameworks if not environments.find(name, frameworks.load(name).default, "cpu")]
    if missing:
        pytest.skip(f"no environments here for {', '.join(missing)}: dlbench env build {' '.join(missing)}")
    campaign.run(campaign.prepare(suite, str(SUITE)), tmp_path, False, lambda sight: None, lambda text: None,
                 lambda outcome, number, total: None)
    with (tmp_path / "trials.csv").open() as file:
        rows = {row["framework"]: (row["status"], row["verified"], row["strategy"], row["global_batch"])
                for row in csv.DictReader(file)}
    assert rows == {
        "pytorch": ("ok", "yes", "ddp", "16"), "tensorflow": ("ok", "yes", "one_device", "16"),
        "jax": ("ok", "yes", "all_reduce", "16"), "paddle": ("ok", "yes", "all_reduce", "16"),
        "mxnet": ("ok", "yes", "local", "16"), "cntk": ("ok", "yes", "data_parallel", "16"),
    }
