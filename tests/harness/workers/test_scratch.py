"""A worker's temporary files go with it, however it ends; caches that are meant to stay are not among them."""

import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.workers import scratch
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, Worker
from tests.parallel import PARALLEL


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which the driver and what it starts put temporary files."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(scratch, "LONGEST_PLACE", 200)  # pytest's own folders have long names
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def littering(tmp_path):
    """Start a worker, or two ranks, of a runner that leaves a file in its temporary folder."""

    def start(ranks):
        if ranks:
            return Ranks(Launch(PARALLEL, 2), sys.executable, "tests.faults.processes.wire:Litters", tmp_path / "log")
        return Worker(sys.executable, "tests.faults.processes.wire:Litters", tmp_path / "log")

    return start


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_what_a_worker_leaves_goes_with_it(place, littering, ranks, end):
    with littering(ranks) as worker:
        worker.ask("hello", limit=60)
        (own,) = place.iterdir()
        assert str(own) == worker.folder.name
        assert len(list(own.glob("litter-*"))) == (2 if ranks else 1)
        if end == "killed":
            os.killpg(worker.process.pid, signal.SIGKILL)
            with pytest.raises(Failed):
                worker.ask("hello", limit=60)
    assert list(place.iterdir()) == []


def test_without_a_folder_of_its_own_a_worker_would_leave_files_behind(place, littering, monkeypatch):
    monkeypatch.setattr(scratch, "variables", lambda folder: {})
    with littering(False) as worker:
        worker.ask("hello", limit=60)
    assert [path.name.partition("-")[0] for path in place.iterdir()] == ["litter"]


def test_the_path_of_a_socket_has_room_wherever_temporary_files_lie(place, monkeypatch):
    monkeypatch.setattr(scratch, "LONGEST_PLACE", 32)
    with scratch.make_folder() as folder:
        assert folder.startswith("/tmp/dlbench-")
        assert len(folder) < 50
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with scratch.make_folder() as folder:
        assert folder.startswith("/dev/shm/dlbench-")


def test_torchinductors_cache_outlives_its_worker(place):
    told = scratch.variables("/tmp/dlbench-one", {})
    assert told["TMPDIR"] == "/tmp/dlbench-one"
    assert Path(told["TORCHINDUCTOR_CACHE_DIR"]).parent == place
    assert scratch.variables("/tmp/dlbench-one", {"TORCHINDUCTOR_CACHE_DIR": "/cache"})["TORCHINDUCTOR_CACHE_DIR"] == "/cache"


@pytest.fixture
def abandoned(place):
    """Make a folder as a driver with this number would, somewhere."""
    def make(name, pid, where=None):
        folder = place / f"dlbench-{name}"
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "weights.npz").write_bytes(b"0")
        if pid:
            (folder / scratch.OWNER).write_text(f"{where or scratch._where()}\n{pid}")
        return folder

    return make


def test_what_a_killed_driver_left_is_cleared_away_by_the_next(place, abandoned):
    gone = subprocess.Popen(["true"])
    gone.wait()
    abandoned("left", gone.pid)
    kept = [abandoned("used", os.getppid()), abandoned("unsigned", None), abandoned("garbled", "x"),
            abandoned("elsewhere", gone.pid, "another-machine pid:[1]")]
    with scratch.make_large_folder() as ours, scratch.make_folder() as worker:
        kept += [Path(ours), Path(worker)]
        scratch.clear_abandoned()
        assert sorted(place.iterdir()) == sorted(kept)
        assert all((folder / "deep" / "weights.npz").exists() for folder in kept[:4])


def test_a_folder_says_whose_it_is(place):
    with scratch.make_large_folder() as folder:
        where, pid = (Path(folder) / scratch.OWNER).read_text().split("\n")
    assert pid == str(os.getpid()) and where.startswith(platform.node())
