"""Which processors a worker is pinned to, on made-up machines."""

from pathlib import Path

import pytest

from runners import resources
from tests.harness.files import write


@pytest.fixture
def two_sockets(tmp_path) -> Path:
    """Two sockets, two cores each, two threads each, numbered as Linux does: 0-3 cores, sockets in turn, 4-7 their siblings."""
    for processor in range(8):
        core = processor % 4
        write(tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology",
              {"thread_siblings_list": f"{core},{core + 4}", "physical_package_id": str(core % 2)})
    return tmp_path


@pytest.mark.parametrize(("threads", "allowed", "chosen"), [
    (2, set(range(8)), [0, 2]),
    (4, set(range(8)), [0, 2, 1, 3]),
    (6, set(range(8)), [0, 2, 1, 3, 4, 6]),
    (99, set(range(8)), [0, 2, 1, 3, 4, 6, 5, 7]),
    (2, {4, 5, 6}, [4, 6]),
    (2, {0, 4}, [0, 4]),
])
def test_physical_cores_are_chosen_before_their_siblings(two_sockets, threads, allowed, chosen):
    assert resources.cores(threads, two_sockets, allowed) == chosen


def test_without_topology_every_processor_is_a_core(tmp_path):
    assert resources.cores(2, tmp_path, {3, 5, 7}) == [3, 5]


def test_by_default_only_processors_of_this_process_are_chosen(monkeypatch, tmp_path):
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda pid: {1, 6})
    assert resources.cores(8, tmp_path) == [1, 6]


def test_a_range_of_processors_is_read_as_the_kernel_writes_it():
    assert resources.processors_of("0-2,8") == (0, 1, 2, 8)
    assert resources.processors_of("") == ()


def test_a_rank_of_a_node_chooses_of_what_its_own_node_allows(monkeypatch):
    """The driver's processors may not be there: a job of Slurm may get others on each node."""
    pinned = []
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda pid: {8, 9, 10, 11})
    monkeypatch.setattr(resources.os, "sched_setaffinity", lambda pid, own: pinned.append(own))
    for rank in range(4):
        resources.pin("2x2", rank)
    assert pinned == [{8, 9}, {10, 11}, {8, 9}, {10, 11}]
    resources.pin("0,1;2,3", 1)
    assert pinned[4:] == [{2, 3}]
    resources.pin("", 0)
    assert len(pinned) == 5


def test_ranks_share_processors_where_there_are_too_few():
    assert [resources.share_of(rank, 3, 2, {0, 1, 2, 3}) for rank in range(3)] == [[0, 1], [2, 3], [0, 1]]
    assert resources.share_of(0, 1, 8, {5, 6}) == [5, 6]
