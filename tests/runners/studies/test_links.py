"""PyTorch's links between two gloo ranks, and within one: every transfer runs, and a larger one takes longer."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from harness.plan.planner import Trial
from harness.studies.aggregation import SMALLEST_BYTES, Effort, Group, measure
from tests.conftest import environment_of
from tests.slow import slow

LARGEST_BYTES = SMALLEST_BYTES * 4**5
EFFORT = Effort(processes=1, windows=3, window_seconds=0.0, largest_bytes=LARGEST_BYTES)
WITHIN = {"to_host", "from_host", "host_sum_one", "host_sum_all", "device_sum", "device_copy", "bit_pack", "bit_unpack"}
BETWEEN = {"send", "shift", "pair", "fan_in", "fan_out", "swap", "all_reduce"}


def rows_of(devices, log, effort=EFFORT):
    environment = environment_of("pytorch")
    trial = Trial(framework="pytorch", release=environment.release, network="tiny_fcn", batch=4, devices=devices, device_kind="cpu",
                  threads=1, precision="fp32", tuning="stock", data="device", learning_rate=0.1, parameters=1, flops_per_step=1,
                  dropout=False, processes_planned=1, ranks=devices)
    return list(measure(Group("default", trial), environment, effort, log))


@slow
def test_two_ranks_have_every_link_and_large_transfers_take_longer(tmp_path):
    # Other programs on a busy machine can delay a few short windows in a row, but not twenty.
    rows = rows_of(2, tmp_path / "log", replace(EFFORT, windows=20))
    assert {(row["link"], row["status"]) for row in rows} == {(link, "ok") for link in WITHIN | BETWEEN}
    quickest = {(link, size): min(row["seconds"] / row["steps"] for row in rows if (row["link"], row["bytes"]) == (link, size))
                for link in WITHIN | BETWEEN for size in (SMALLEST_BYTES, LARGEST_BYTES)}
    assert [(link, quickest[link, SMALLEST_BYTES], quickest[link, LARGEST_BYTES]) for link in sorted(WITHIN | BETWEEN)
            if not quickest[link, LARGEST_BYTES] > quickest[link, SMALLEST_BYTES] > 0] == []
    for row in rows:
        if row["link"] == "host_sum_all":  # the threads' sleep is no part of it
            assert row["stop"] - row["start"] - row["seconds"] >= 0.005 * row["steps"]


def test_a_device_alone_says_why_it_sends_to_no_other(tmp_path):
    rows = rows_of(1, tmp_path / "log", replace(EFFORT, windows=1, largest_bytes=SMALLEST_BYTES))
    assert {row["link"] for row in rows if row["status"] == "ok"} == WITHIN
    assert {(row["link"], row["reason"]) for row in rows if row["status"] != "ok"} == {
        (link, "a single device has no other to send to") for link in BETWEEN}


def test_beside_gpus_half_the_processors_add_and_one_at_least():
    asked = ("import os; from runners.pytorch.host import adding_threads; print(adding_threads()); "
             "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(adding_threads())")
    said = subprocess.check_output([environment_of("pytorch").interpreter, "-c", asked], text=True, cwd=Path(__file__).parents[3])
    assert said.split() == [str(max(1, len(os.sched_getaffinity(0)) // 2)), "1"]


def test_every_buffer_that_the_host_adds_begins_on_a_cache_line():
    asked = ("import torch.distributed as dist; from runners.pytorch.host import shared_floats; "
             "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1); "
             "rows = shared_floats(3, 1000 * 1000 + 10, 0, None); rows += 1; "
             "print(*(row.data_ptr() % 64 for row in rows), *rows.shape, rows.sum().item())")
    said = subprocess.check_output([environment_of("pytorch").interpreter, "-c", asked], text=True, cwd=Path(__file__).parents[3])
    assert said.split() == ["0", "0", "0", "3", "1000010", "3000030.0"]
