"""What `--on` takes in words and in YAML, and the batch file that follows from it."""

import subprocess
from pathlib import Path

import pytest

from harness.campaign.campaign import prepare
from harness.cluster.job import Job, script
from harness.cluster.options import Cluster, parse
from harness.errors import WrongUse
from harness.machine import hardware
from harness.plan.suite import Suite

JOB = Job(("run", "smoke.yaml"), Path("/records/of mine"), Path("/home/me"))


def test_words_and_yaml_say_the_same(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("partition: gpu\ngpus: 8\ntime: 2:00:00\noptions: {constraint: h200, reservation: mine}\n")
    words = "slurm,partition=gpu,gpus=8,time=2:00:00,options.constraint=h200,options.reservation=mine"
    assert parse(words) == parse(str(file))
    assert parse("slurm") == Cluster()


@pytest.mark.parametrize(("text", "minutes"), [
    ("90", 90), ("2:00:00", 120), ("0:00:30", 1), ("1-0", 1440), ("1-2:30", 1590), ("1-00:00:01", 1441)])
def test_a_time_is_written_as_slurm_takes_it(text, minutes):
    assert parse(f"slurm,time={text}").time == minutes


@pytest.mark.parametrize(("words", "said"), [
    ("slurm,time=1:30", "hours:minutes:seconds"), ("slurm,time=0", "greater than"), ("slurm,nodes=0", "nodes"),
    ("slurm,gpus", "write key=value"), ("slurm,options.time=5", "dlbench sets it"), ("slurm,partition=a b", "no name"),
    ("slurm,options.X=5", "long name"), ("pbs", "engine"), ("slurm,partition=$(ls)", "no name")])
def test_a_wrong_word_is_refused_with_its_key(words, said):
    with pytest.raises(WrongUse, match="--on") as caught:
        parse(words)
    assert said in str(caught.value)


def test_the_batch_file_is_bash_and_says_what_was_asked_for():
    text = script(parse("slurm,partition=gpu,account=me,nodes=2,gpus=8,options.constraint=h200"), JOB)
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
    for line in ("partition=gpu", "account=me", "nodes=2", "gpus-per-node=8", "exclusive", "requeue", "constraint=h200", "time=60"):
        assert f"#SBATCH --{line}\n" in text
    assert "out='/records/of mine'\n" in text


@pytest.mark.parametrize("gpus", [8, 16])
def test_a_login_node_plans_for_the_gpus_of_another(gpus):
    gpu = {"name": "assumed", "driver": "assumed", "memory_bytes": None}
    machine = {**hardware.describe(), "gpus": [{**gpu, "cuda_index": number} for number in range(gpus)]}
    suite = Suite.model_validate({"frameworks": "pytorch", "networks": "fcn5", "batch": 64, "devices": [1, 8, 16, 32]})
    planned = prepare(suite, "suite.yaml", machine=machine).planned
    assert [trial.devices for trial in planned] == [each for each in (1, 8, 16) if each <= gpus]
