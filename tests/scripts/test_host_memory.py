"""scripts/host_memory.py: processors read every buffer, threads make the mean in every memory, one thread wherever they lie."""

import csv
import itertools
import math
import os
import subprocess
from pathlib import Path

from tests.conftest import environment_of

SCRIPT = Path(__file__).parents[2] / "scripts/host_memory.py"


def test_every_processor_reads_and_threads_add(tmp_path):
    environment = environment_of("pytorch")
    command = [environment.interpreter, SCRIPT, "--ranks", "2", "--megabytes", "4", "--memories", "2", "--buffers", "2",
               "--repetitions", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    processors = {str(processor) for processor in os.sched_getaffinity(0)}
    reads, means, ones = ([row for row in rows if row["kind"] == kind] for kind in ("read", "mean", "one"))
    assert {(row["processor"], row["memory"]) for row in reads} == {(each, memory) for each in processors for memory in "01"}
    assert len(means) == 2 * 3 * len({row["threads"] for row in means})
    assert str(max(1, len(processors) // 2)) in {row["threads"] for row in means}  # as many as host_all adds with
    memories = {f"{way} {number}" for way in ("as given", "behind a line", "scattered") for number in "01"}
    held = {"", *sorted(processors, key=int)[:: max(1, len(processors) // 4)][:4]}  # "": free
    assert {(row["memory"], row["processor"]) for row in ones} == {(memory, where) for memory in memories for where in held}
    assert len(ones) == 3 * len(memories) * len(held) * len({row["written_by"] for row in ones})
    assert all(math.isnan(share) or 0 <= share <= 1 for share in (float(row["in_order"]) for row in ones))
    turns = [row["memory"] for row in ones if row["processor"] == "" and row["written_by"] == "host"]
    assert turns == list(dict.fromkeys(turns)) * 3  # in each repetition all memories once, so that they meet the same neighbours
    for row, after in itertools.pairwise(rows):
        assert 0 < float(row["at"]) <= float(after["at"])
    for row in rows:
        assert float(row["seconds"]) > 0
        assert 0 <= float(row["stolen_cores"]) <= os.cpu_count()
        factor = {"read": 1, "mean": 3, "one": 3}[row["kind"]] / 1000
        assert abs(float(row["gigabytes_per_second"]) * float(row["seconds"]) / (factor * float(row["megabytes"])) - 1) < 0.06
