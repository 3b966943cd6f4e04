"""Campaigns on a real Slurm of two nodes: the exit code comes back, and what was finished is kept."""

import csv
import signal
import sys

import psutil
import pytest

from tests.harness.cluster.conftest import thorough, wait
from tests.slow import slow


def whole(cluster, name, processes):
    """Check that every process is recorded once, and that the audit passes."""
    with (cluster.folder / name / "processes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["process"]) for row in rows] == list(range(processes))
    assert {row["status"] for row in rows} == {"ok"}
    audited = cluster.dlbench("audit", str(cluster.folder / name))
    assert audited.returncode == 0, audited.stdout


def test_a_campaign_runs_as_a_job_and_hands_back_its_exit_code(cluster):
    suite = cluster.suite("good")
    done = cluster.dlbench("run", suite, "--on", "slurm,nodes=2,partition=debug", "--out", str(cluster.folder / "good"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "submitted" in done.stdout and "completed on" in done.stdout
    whole(cluster, "good", 2)
    assert cluster.strangers() == []


def test_a_campaign_whose_rows_fail_hands_back_1(cluster):
    python = cluster.folder / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *runners*) exit 3;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    suite = cluster.suite("bad", more=f"interpreters: {{reference: {python}}}\n")
    done = cluster.dlbench("run", suite, "--on", "slurm", "--out", str(cluster.folder / "bad"))
    assert done.returncode == 1
    assert "with exit code 3" in cluster.processes("bad")[0]


@pytest.mark.parametrize("form", ["submitit", pytest.param("batch file", marks=thorough)])
def test_a_job_near_its_limit_is_requeued_and_resumes(cluster, form):
    name = form.replace(" ", "-")
    suite, out = cluster.suite(name, processes=5), str(cluster.folder / name)
    if form == "submitit":
        submitted = cluster.start(name, suite, "--on", "slurm")
    else:
        text = cluster.dlbench("slurm-script", suite, "--out", out).stdout
        (cluster.folder / "job.sh").write_text(text)
        assert cluster.on("n1", "sbatch", str(cluster.folder / "job.sh")).returncode == 0
    wait(lambda: len(cluster.processes(name)) > 1)
    job = cluster.job()
    cluster.on("n1", "scancel", "--batch", "--signal=USR2", job)
    if form == "submitit":
        said, _ = submitted.communicate(timeout=120)
        assert submitted.returncode == 0, said
    else:
        wait(lambda: "COMPLETED" in cluster.on("n1", "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout)
    assert "Restarts=1 " in cluster.on("n1", "scontrol", "show", "job", job).stdout
    whole(cluster, name, 5)


@slow
def test_two_nodes_repeat_a_campaign_and_are_joined(cluster):
    suite, out = cluster.suite("twice"), cluster.folder / "twice"
    done = cluster.dlbench("run", suite, "--on", "slurm,nodes=2,repeat=true", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    rows, [trial] = (list(csv.DictReader((out / f"{name}.csv").read_text().splitlines())) for name in ("processes", "trials"))
    assert sorted((row["node"], row["process"]) for row in rows) == [("n1", "0"), ("n1", "1"), ("n2", "2"), ("n2", "3")]
    assert (trial["repeated_on_nodes"], trial["step_seconds_low"]) == ("2", "")
    assert "no interval: 2 of at least 3 nodes" in trial["reason"]
    for folder in (out, cluster.folder / "twice.nodes" / "n1", cluster.folder / "twice.nodes" / "n2"):
        audited = cluster.dlbench("audit", str(folder))
        assert audited.returncode == 0, audited.stdout
    again = cluster.dlbench("run", suite, "--on", "slurm,nodes=2,repeat=true", "--out", str(out))
    assert again.returncode == 2 and "holds a campaign already" in again.stderr


@thorough
def test_a_repeated_campaign_near_its_limit_goes_on_on_both_nodes(cluster):
    suite = cluster.suite("both", processes=5)
    submitted = cluster.start("both", suite, "--on", "slurm,nodes=2,repeat=true")
    wait(lambda: all(len(cluster.processes(f"both.nodes/{node}")) > 1 for node in ("n1", "n2")))
    cluster.on("n1", "scancel", "--batch", "--signal=USR2", cluster.job())
    said, _ = submitted.communicate(timeout=600)
    assert submitted.returncode == 0, said
    whole(cluster, "both", 10)
    assert cluster.strangers() == []


@thorough
def test_a_job_that_is_preempted_goes_on_afterwards(cluster):
    submitted = cluster.start("preempted", cluster.suite("preempted", processes=5), "--on", "slurm,nodes=2,partition=debug")
    wait(lambda: len(cluster.processes("preempted")) > 1)
    job = cluster.job()
    assert cluster.on("n1", "sbatch", "-p", "urgent", "-N2", "--exclusive", "--wrap", "sleep 2").returncode == 0
    said, _ = submitted.communicate(timeout=600)
    assert submitted.returncode == 0, said
    assert "Restarts=1 " in cluster.on("n1", "scontrol", "show", "job", job).stdout
    whole(cluster, "preempted", 5)


@thorough
def test_a_campaign_outlives_the_death_of_its_nodes_slurmd(cluster):
    submitted = cluster.start("orphan", cluster.suite("orphan", processes=6), "--on", "slurm,options.nodelist=n1")
    wait(lambda: len(cluster.processes("orphan")) > 1)
    cluster.lose("n1", cluster.job())
    cluster.revive("n1")
    said, _ = submitted.communicate(timeout=600)
    assert submitted.returncode == 0, said
    whole(cluster, "orphan", 6)


def test_a_job_that_is_cancelled_leaves_nothing_and_keeps_what_was_finished(cluster):
    submitted = cluster.start("cancelled", cluster.suite("cancelled", processes=60), "--on", "slurm")
    wait(lambda: cluster.processes("cancelled"))
    cluster.on("n1", "scancel", cluster.job())
    said, _ = submitted.communicate(timeout=600)
    assert submitted.returncode == 1
    assert "ended as cancelled" in said and "--resume" in said
    wait(lambda: cluster.strangers() == [])
    assert 0 < len(cluster.processes("cancelled")) < 60


@slow
def test_ctrl_c_where_it_was_submitted_lets_the_job_go_on(cluster):
    submitted = cluster.start("left", cluster.suite("left"), "--on", "slurm")
    job = cluster.job()
    for process in [*psutil.Process(submitted.pid).children(recursive=True), psutil.Process(submitted.pid)]:
        process.send_signal(signal.SIGINT)
    said, _ = submitted.communicate(timeout=600)
    assert f"scancel {job}" in said
    wait(lambda: "COMPLETED" in cluster.on("n1", "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout)
    whole(cluster, "left", 2)


@pytest.mark.parametrize(("where", "said"), [
    ("slurm,partition=nowhere", "Invalid partition"), ("slurm,gpus=3", "Slurm refuses the job"),
    ("slurm,time=soon", "write minutes"), ("torque", "engine"), ("slurm,partitoin=debug", "did you mean partition?"),
    ("nowhere.yaml", "no such file")])
def test_bad_options_are_one_message(cluster, where, said):
    done = cluster.dlbench("run", cluster.suite("wrong"), "--on", where, "--out", str(cluster.folder / "wrong"))
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_doctor_describes_every_node(cluster):
    shown = cluster.dlbench("doctor", "--on", "slurm,partition=debug").stdout
    assert [line.split()[0] for line in shown.splitlines() if " debug" in line] == ["n1", "n2"]
