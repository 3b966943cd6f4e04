"""Training on two nodes whose clocks are 1,000 s apart: proven the same, and a rank's death is one row."""

import csv
import sys

import pytest

from harness.environments import recipes, store
from tests.harness.cluster.conftest import thorough, wait
from tests.slow import slow


def rows_of(cluster, name, table="processes"):
    with (cluster.folder / name / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("framework", ["pytorch", pytest.param("jax", marks=thorough), pytest.param("tensorflow", marks=thorough)])
def test_two_nodes_train_the_same_network(cluster, framework):
    need(cluster, framework)
    suite = cluster.suite(framework, framework, processes=1, more="nodes: 2\nbatch: 8\n")
    done = cluster.dlbench("run", suite, "--on", "slurm,nodes=2", "--out", str(cluster.folder / framework))
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = rows_of(cluster, framework)
    assert (row["status"], row["check"]) == ("ok", "same"), row["reason"]
    assert all(0 < float(window["seconds"]) < 60 for window in rows_of(cluster, framework, "windows"))
    assert all(float(window["network_tx_bytes"]) > 0 for window in rows_of(cluster, framework, "network"))
    assert rows_of(cluster, framework, "trials")[0]["nodes"] == "2"
    for node in ("host", "n2/host"):
        told = [each for each in rows_of(cluster, framework, "counters") if each["device"] == node and each["nic_tx_bytes"]]
        assert float(told[-1]["nic_tx_bytes"]) > 0 and float(told[-1]["memory_used_bytes"]) > 0 and not told[-1]["broken"]
    assert cluster.strangers() == []


@thorough
@pytest.mark.parametrize("rate", ["1gbit", "200mbit"])
def test_bytes_and_time_between_nodes_are_those_of_the_model(cluster, rate):
    need(cluster, "pytorch")
    for node, link in (("n1", "v1"), ("n2", "v2")):
        shaped = cluster.on(node, "tc", "qdisc", "change", "dev", link, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        if shaped.returncode:
            pytest.skip(f"this kernel shapes no traffic: {shaped.stderr.strip()}")
    suite = cluster.suite(rate, "pytorch", "fcn5", processes=1, more="nodes: 2\nbatch: 64\nphases: true\n")
    folder, links = (str(cluster.folder / name) for name in (rate, f"links-{rate}"))
    done = cluster.dlbench("run", suite, "--on", "slurm,nodes=2", "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    studied = cluster.on("n1", "salloc", "-Q", "-N2", "--exclusive", sys.executable, "-m", "harness.start", "study", "aggregation", folder,
                         "--nodes", "2", "--devices", "1", "--device", "cpu", "--processes", "1", "--windows", "2", "--out", links)
    assert studied.returncode == 0, studied.stdout + studied.stderr
    [trial], [found] = rows_of(cluster, rate, "trials"), rows_of(cluster, f"links-{rate}", "predictions")
    # Two nodes: each sends the gradients' bytes once.
    assert float(trial["network_tx_bytes_per_step"]) == pytest.approx(2 * 4 * int(trial["parameters"]), rel=0.05)
    assert float(found["predicted_seconds"]) == pytest.approx(float(found["measured_seconds"]), rel=0.2)


@slow
def test_a_rank_that_is_killed_on_the_second_node_is_one_failed_row(cluster):
    need(cluster, "pytorch")
    suite = cluster.suite("killed", "pytorch", processes=1, more="nodes: 2\nbatch: 8\n")
    submitted = cluster.start("killed", suite, "windows=400", "window_seconds=1", "--on", "slurm,nodes=2")
    wait(lambda: '"timing"' in cluster.events("killed"))
    [pid] = cluster.on("n2", "pgrep", "-f", "python[0-9.]* -u -m runners ").stdout.split()
    cluster.on("n2", "kill", "-KILL", pid)
    said, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 1, said
    [row] = rows_of(cluster, "killed")
    assert row["status"] == "failed" and "rank" in row["reason"]
    wait(lambda: cluster.strangers() == [])


def need(cluster, framework):
    if not cluster.namespaces:
        pytest.skip("the nodes share this host's network: this kernel lends no namespaces")
    if store.find(framework, recipes.load(framework).default, "cpu") is None:
        pytest.skip(f"no environment here for {framework}: dlbench env build {framework}")
