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
    command = [environment.interpreter, SCRIPT, "--ranks", "2", "--megabytes", "4", "8", "--memories", "2",
               "--buffers", "2", "--repetitions", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    processors = {str(processor) for processor in os.sched_getaffinity(0)}
    reads, means, ones = ([row for row in rows if row["kind"] == kind] for kind in ("read", "mean", "one"))
    assert {(row["processor"], row["memory"]) for row in reads} == {(each, memory) for each in processors for memory in "01"}
    assert len(means) == 2 * 2 * 3 * len({row["threads"] for row in means})
    assert str(max(1, len(processors) // 2)) in {row["threads"] for row in means}  # as many as host_all adds with
    ways, sizes = ("as given", "behind a line", "scattered"), ("9", "19")  # megabytes, in additions
    memories = {(f"{way} {number}", size) for way in ways for number in "01" for size in sizes}
    held = {"", *sorted(processors, key=int)[:: max(1, len(processors) // 4)][:4]}  # "": free
    writers = {row["written_by"] for row in ones}
    turns = [(row["memory"], row["megabytes"]) for row in ones]
    each = len(held) * len(writers)
    for repetition in range(3):  # each memory has one turn in it, in which each processor adds what each wrote
        own = turns[repetition * each * len(memories):(repetition + 1) * each * len(memories)]
        assert {*own[::each]} == memories and own == [turn for turn in own[::each] for _ in range(each)]
    assert turns[::each][:len(memories)] != turns[::each][len(memories):2 * len(memories)]  # in another order
    assert {(row["memory"], row["megabytes"], row["processor"], row["written_by"]) for row in ones} == {
        (*memory, where, writer) for memory in memories for where in held for writer in writers}
    assert len(ones) == 3 * len(memories) * each
    assert all(math.isnan(share) or 0 <= share <= 1 for share in (float(row["in_order"]) for row in ones))
    assert all(0 < float(row["fixed_seconds"]) < 1 for row in ones)
    for row, after in itertools.pairwise(rows):
        assert 0 < float(row["at"]) <= float(after["at"])
    for row in rows:
        assert float(row["seconds"]) > 0
        assert 0 <= float(row["stolen_cores"]) <= os.cpu_count()
        factor = {"read": 1, "mean": 3, "one": 3}[row["kind"]] / 1000
        assert abs(float(row["gigabytes_per_second"]) * float(row["seconds"]) / (factor * float(row["megabytes"])) - 1) < 0.06
