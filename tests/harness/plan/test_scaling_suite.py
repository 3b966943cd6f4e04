"""configs/scaling-cpu.yaml in its smallest form: one and two CPU devices in every framework.

Tests of each framework prove more devices, other networks and faults.
"""

import csv
from pathlib import Path

import pytest

from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.environments import recipes, store
from harness.plan.planner import Machine, make_trials
from harness.plan.suite import load_suite
from tests.slow import slow

SUITE = Path(__file__).parents[3] / "configs" / "scaling-cpu.yaml"


def test_every_row_of_the_suite_can_be_trained():
    suite = load_suite(SUITE)
    releases = {name: recipes.load(name).default for name in suite.frameworks}
    planned = make_trials(suite, releases, Machine("cpu", cores=2, devices=0), lambda name: False)
    assert {trial.status for trial in planned} == {"planned"}
    rows = {(trial.framework, trial.network, trial.devices, trial.global_batch // trial.batch)
            for trial in planned}
    assert len(rows) == 6 * 2 * 3
    assert len(planned) == 6 * 2 * (1 + 2 * 2)  # on one device weak and strong are one


def test_caffe_is_refused_in_its_own_words():
    suite = load_suite(SUITE, ["frameworks=caffe", "devices=2", "networks=fcn5", "scaling=weak"])
    planned = make_trials(suite, {"caffe": "1.0.0"}, Machine("cpu", cores=2, devices=0),
                          lambda name: False)
    assert [trial.status for trial in planned] == ["unsupported"]
    assert planned[0].reason.endswith(
        '"Multi-GPU execution not available - rebuild with USE_NCCL"')


DEFAULTS = {"pytorch": "ddp", "tensorflow": "one_device", "jax": "all_reduce", "paddle": "all_reduce",
            "mxnet": "local", "cntk": "data_parallel"}


@slow
def test_one_and_two_devices_train_the_same_network_in_every_framework(tmp_path):
    suite = load_suite(SUITE, [
        "networks=tiny_fcn", "batch=8", "scaling=strong", "devices=1,2", "processes=1", "windows=1",
        "window_seconds=0.01", "peaks=false", "telemetry=false", "check_jobs=2", "prepare_jobs=3"])
    missing = [name for name in suite.frameworks
               if not store.find(name, recipes.load(name).default, "cpu")]
    if missing:
        pytest.skip(f"no environments here for {', '.join(missing)}: "
                    f"dlbench env build {' '.join(missing)}")
    campaign.run(campaign.prepare(suite, str(SUITE)), tmp_path, Listener())
    with (tmp_path / "trials.csv").open() as file:
        rows = {(row["framework"], row["devices"]):
                (row["status"], row["verified"], row["strategy"], row["global_batch"])
                for row in csv.DictReader(file)}
    # All have one global batch, so `verified` compares each one's losses with the eleven others'.
    assert rows == {(name, devices): ("ok", "yes", "" if devices == "1" else strategy, "8")
                    for name, strategy in DEFAULTS.items() for devices in ("1", "2")}
