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


@pytest.mark.parametrize("framework", ["pytorch", *(pytest.param(name, marks=thorough) for name in ("jax", "tensorflow", "paddle", "mxnet", "cntk"))])
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
@pytest.mark.parametrize(("rate", "windows"), [("1gbit", 15), ("200mbit", 5)])
def test_bytes_and_time_between_nodes_are_those_of_the_model(cluster, rate, windows):
    """Links are fitted on the wire that trains, each framework's own sum among them; it says all misses at once."""
    frameworks = ["pytorch", "jax", "tensorflow"]
    for each in frameworks:
        need(cluster, each)
    for node, link in (("n1", "v1"), ("n2", "v2")):
        shaped = cluster.on(node, "tc", "qdisc", "change", "dev", link, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        if shaped.returncode:
            pytest.skip(f"this kernel shapes no traffic: {shaped.stderr.strip()}")
    more = "nodes: 2\nbatch: 64\nphases: true\ntelemetry: false\n"
    suite = cluster.suite(rate, ", ".join(frameworks), "fcn5, alexnet_cifar", processes=1, more=more)
    folder, links = (str(cluster.folder / name) for name in (rate, f"links-{rate}"))
    done = cluster.dlbench("run", suite, f"windows={windows}", "window_seconds=0.2", "--on", "slurm,nodes=2", "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    studied = cluster.on("n1", "salloc", "-Q", "-N2", "--exclusive", sys.executable, "-m", "harness.start", "study", "aggregation", folder,
                         "--nodes", "2", "--devices", "1", "--device", "cpu", "--links", "all_reduce", "--processes", "1",
                         "--windows", str(windows), "--out", links)
    assert studied.returncode == 0, studied.stdout + studied.stderr
    trials, found = rows_of(cluster, rate, "trials"), rows_of(cluster, f"links-{rate}", "predictions")
    assert [row["verified"] for row in trials] == ["yes"] * 6
    # Two nodes: each sends the gradients' bytes once.
    sent = {trial["framework"] + " " + trial["network"]: float(trial["network_tx_bytes_per_step"]) / (2 * 4 * int(trial["parameters"]))
            for trial in trials}
    # Where no line follows a library's times, the points of the sweep predict.
    off = {row["framework"] + " " + row["network"]: float(row["swept_error" if "no line follows" in row["reason"] else "error"])
           for row in found}
    assert (len(sent), len(off)) == (6, 6)
    print(rate, "bytes over the model's", sent, "predicted over measured, less 1", off)
    assert {name: share for name, share in sent.items() if abs(share - 1) > 0.05} == {}
    assert {name: error for name, error in off.items() if not abs(error) <= 0.2} == {}


@pytest.mark.parametrize("framework", [pytest.param("pytorch", marks=slow), *(
    pytest.param(name, marks=thorough) for name in ("jax", "tensorflow", "paddle", "mxnet", "cntk"))])
def test_a_rank_that_is_killed_on_the_second_node_is_one_failed_row(cluster, framework):
    need(cluster, framework)
    name = f"killed-{framework}"
    suite = cluster.suite(name, framework, processes=1, more="nodes: 2\nbatch: 8\n")
    submitted = cluster.start(name, suite, "windows=400", "window_seconds=1", "--on", "slurm,nodes=2")
    wait(lambda: '"timing"' in cluster.events(name))
    # A launcher is older than its rank.
    [pid] = cluster.on("n2", "pgrep", "-n", "-f", " -m runners runners").stdout.split()
    cluster.on("n2", "kill", "-KILL", pid)
    said, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 1, said
    [row] = rows_of(cluster, name)
    assert row["status"] == "failed" and "rank" in row["reason"], row["reason"]
    wait(lambda: cluster.strangers() == [])


SENT = {"nothing": b"", "no secret": b'{"rank": 1, "pid": 1}\n', "a wrong secret": b"0" * 64 + b'{"rank": 0, "pid": 1}\n'}
STRANGER = """\
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as stranger:
    stranger.sendall(bytes.fromhex(sys.argv[3]))
    stranger.settimeout(30)
    try:
        print("heard", stranger.recv(1))
    except ConnectionResetError:
        print("heard", b"")
"""


@slow
def test_strangers_on_the_port_are_turned_away_and_cost_no_row(cluster):
    need(cluster, "pytorch")
    suite = cluster.suite("stranger", "pytorch", processes=1, more="nodes: 2\nbatch: 8\n")
    submitted = cluster.start("stranger", suite, "windows=80", "window_seconds=0.5", "--on", "slurm,nodes=2")
    wait(lambda: '"timing"' in cluster.events("stranger"))
    _, address, port = cluster.wire().split(":")
    for name, said in SENT.items():
        heard = cluster.on("n2", sys.executable, "-c", STRANGER, address, port, said.hex())
        assert heard.stdout == "heard b''\n", f"{name}: {heard.stdout}{heard.stderr}"
    elsewhere = cluster.on("n1", sys.executable, "-c", STRANGER, "127.0.0.1", port, "")
    assert "ConnectionRefusedError" in elsewhere.stderr
    said, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 0, said
    [row] = rows_of(cluster, "stranger")
    assert (row["status"], row["check"]) == ("ok", "same"), row["reason"]
    assert cluster.strangers() == []


@thorough
def test_a_campaign_of_two_nodes_that_is_cancelled_leaves_nothing_on_either(cluster):
    need(cluster, "pytorch")
    suite = cluster.suite("stopped", "pytorch", processes=9, more="nodes: 2\nbatch: 8\n")
    submitted = cluster.start("stopped", suite, "--on", "slurm,nodes=2")
    wait(lambda: len(cluster.processes("stopped")) == 1 and cluster.events("stopped").count('"timing"') == 2, 180)
    cluster.on("n1", "scancel", cluster.job())
    said, _ = submitted.communicate(timeout=600)
    assert submitted.returncode == 1 and "ended as cancelled" in said
    wait(lambda: cluster.strangers() == [])
    assert [row["status"] for row in rows_of(cluster, "stopped")] == ["ok"]


@thorough
def test_a_campaign_of_two_nodes_outlives_the_death_of_the_second_nodes_slurmd(cluster):
    need(cluster, "pytorch")
    suite = cluster.suite("widow", "pytorch", processes=3, more="nodes: 2\nbatch: 8\n")
    submitted = cluster.start("widow", suite, "--on", "slurm,nodes=2")
    wait(lambda: len(cluster.processes("widow")) == 1, 180)
    cluster.lose("n2", cluster.job())
    wait(lambda: cluster.strangers() == [])
    cluster.revive("n2")
    said, _ = submitted.communicate(timeout=300)
    assert submitted.returncode == 0, said
    assert [(row["process"], row["status"], row["check"]) for row in rows_of(cluster, "widow")] == [
        (str(process), "ok", "same") for process in range(3)]
    audited = cluster.dlbench("audit", str(cluster.folder / "widow"))
    assert audited.returncode == 0, audited.stdout
    assert cluster.strangers() == []


def need(cluster, framework):
    if not cluster.namespaces:
        pytest.skip("the nodes share this host's network: this kernel lends no namespaces")
    if store.find(framework, recipes.load(framework).default, "cpu") is None:
        pytest.skip(f"no environment here for {framework}: dlbench env build {framework}")
