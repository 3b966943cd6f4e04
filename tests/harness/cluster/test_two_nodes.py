"""Training on two nodes whose clocks are 1,000 s apart: proven the same, and a rank's death is one row."""

import csv

import pytest

from harness.environments import recipes, store
from tests.harness.cluster.conftest import thorough, wait


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
    assert cluster.strangers() == []


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
