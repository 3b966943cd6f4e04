"""scripts/aggregation_parts.py on two gloo ranks: every part of each strategy has its times."""

import csv
import os
import subprocess
from pathlib import Path

from tests.conftest import environment_of

SCRIPT = Path(__file__).parents[2] / "scripts/aggregation_parts.py"


def test_every_part_is_timed_on_two_ranks(tmp_path):
    environment = environment_of("pytorch")
    command = [environment.interpreter, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", SCRIPT,
               "--networks", "tiny_fcn", "--steps", "tiny_cnn", "--batch", "4", "--repetitions", "4", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={**os.environ, **environment.variables})
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    host = [row for row in rows if row["strategy"] == "host_all"]
    assert [row["part"] for row in host[:5]] == ["up", "wait", "sum", "wait for the sum", "down"]
    assert {row["part"] for row in rows if row["strategy"] == "bf16_compress"} == {
        "all-reduces", "casts", "one after another", "hook"}
    assert [row["part"] for row in rows if row["network"] == "tiny_cnn"] == [
        "step, nothing sent", "step", "step, buffers not sent", "step, buffers not sent, no copies"]
    for row in rows:
        assert 0 < float(row["least"]) <= float(row["median"]) <= float(row["nine_in_ten"]) <= float(row["most"])
        assert row["repetitions"] == "4"


def test_one_device_is_told_how_to_start_it(tmp_path):
    environment = environment_of("pytorch")
    command = [environment.interpreter, SCRIPT, "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    assert "one device has nothing to aggregate: start it with torchrun --nproc-per-node 2" in done.stderr
