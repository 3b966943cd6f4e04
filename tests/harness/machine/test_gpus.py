"""GPUs as the doctor and a campaign's record describe them, from a made-up NVML; whose processes are ours."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pynvml
import pytest

from harness.machine import gpus, nvml
from harness.workers.worker import DRIVER
from tests.harness.fake_nvml import NOT_SUPPORTED, FakeNvml, Gpu, install

H200 = {
    "index": 0, "cuda_index": 0, "name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "memory_used_bytes": 2**30,
    "driver": "580.1", "cuda": "13.0", "sm_mhz": 1980, "memory_mhz": 3201, "sm_max_mhz": 1980, "memory_max_mhz": 3201,
    "power_limit_watts": 700.0, "power_limit_default_watts": 700.0, "temperature_celsius": 30, "ecc": True, "persistence": True,
    "mig": False, "pcie_generation": 5, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16, "nvlinks": 0,
    "numa_node": None, "throttle_reasons": [], "processes": [],
}


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def fake(monkeypatch):
    return lambda *found, **system: install(monkeypatch, FakeNvml(*found, **system), nvml, gpus)


def test_a_gpu_is_described_in_watts_bytes_and_megahertz(fake, tmp_path):
    fake(Gpu())
    assert gpus.describe(tmp_path) == ([H200], [], None)


def test_what_a_gpu_cannot_tell_is_none(fake, tmp_path):
    fake(Gpu(nvmlDeviceGetEccMode=NOT_SUPPORTED, nvmlDeviceGetMemoryInfo=NOT_SUPPORTED))
    assert gpus.describe(tmp_path)[0] == [{**H200, "ecc": None, "memory_bytes": None, "memory_used_bytes": None}]


def test_a_gpu_is_beside_the_memory_node_that_the_kernel_says(fake, tmp_path):
    folder = tmp_path / "sys/bus/pci/devices/0000:0a:00.0"
    folder.mkdir(parents=True)
    fake(Gpu())
    for text, node in (("1\n", 1), ("-1\n", None)):
        (folder / "numa_node").write_text(text)
        assert gpus.describe(tmp_path)[0] == [{**H200, "numa_node": node}]


def test_cuda_numbers_what_its_variable_leaves(fake, tmp_path, monkeypatch):
    fake(Gpu("GPU-a"), Gpu("GPU-b"), Gpu("GPU-c"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-c,0")
    assert [gpu["cuda_index"] for gpu in gpus.describe(tmp_path)[0]] == [1, None, 0]


def test_throttling_and_foreign_processes_are_named(fake, tmp_path):
    running = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=2**31 - 1)]
    fake(Gpu(nvmlDeviceGetCurrentClocksEventReasons=0x45, nvmlDeviceGetComputeRunningProcesses=running))
    found = gpus.describe(tmp_path)[0][0]
    assert found["throttle_reasons"] == ["software power cap", "hardware thermal slowdown"]
    assert found["processes"] == [{"pid": 2**31 - 1, "name": None}]


def test_no_driver_is_no_gpu_and_a_broken_driver_is_said(fake, tmp_path):
    fake(nvmlInit=pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert gpus.describe(tmp_path) == ([], [], None)
    fake(nvmlInit=pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    assert gpus.describe(tmp_path) == ([], [], "RM has detected an NVML/RM version mismatch.")


def test_gpus_are_linked_by_nvlink_or_by_their_path_over_pcie(fake, tmp_path):
    linked = {"nvmlDeviceGetNvLinkState": lambda link: link < 18}
    fake(Gpu("GPU-a", **linked), Gpu("GPU-b", **linked), nvmlDeviceGetP2PStatus=pynvml.NVML_P2P_STATUS_OK)
    found, links, _ = gpus.describe(tmp_path)
    assert [gpu["nvlinks"] for gpu in found] == [18, 18]
    assert links == [{"gpus": [0, 1], "path": "NVLink"}]
    for level, path in ((pynvml.NVML_TOPOLOGY_SINGLE, "one PCIe switch"), (NOT_SUPPORTED, None),
                        (pynvml.NVML_TOPOLOGY_SYSTEM, "the link between processor sockets")):
        fake(Gpu("GPU-a"), Gpu("GPU-b"), nvmlDeviceGetTopologyCommonAncestor=level)
        assert gpus.describe(tmp_path)[1] == [{"gpus": [0, 1], "path": path}]


@pytest.fixture
def stranger():
    """Start a process outside of our descent, as `stranger(variables)`; returns its number. It ends with the test."""
    keepers = []

    def start(**variables):
        child = ("import subprocess, sys; child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); "
                 "sys.stdin.read(); child.kill()")
        keeper = subprocess.Popen([sys.executable, "-c", child], env={**os.environ, **variables}, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        keepers.append(keeper)
        return int(keeper.stdout.readline())

    yield start
    for keeper in keepers:
        keeper.communicate("")


def test_ours_are_this_process_and_its_descendants(stranger, monkeypatch):
    gone = subprocess.Popen(["true"])
    gone.wait()
    descendant, of_another = stranger(), stranger(**{DRIVER: str(os.getppid())})
    assert gpus.is_ours(os.getpid()) and gpus.is_ours(descendant)
    monkeypatch.setattr(gpus.os, "getpid", lambda: 2**31 - 1)  # seen from a driver that is not their parent
    assert [gpus.is_ours(pid) for pid in (descendant, of_another, gone.pid)] == [False, False, False]


def test_a_worker_whose_driver_is_gone_counts_as_foreign_and_is_named(stranger, monkeypatch, fake, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, used = stranger(**{DRIVER: str(gone.pid)}), stranger(**{DRIVER: str(os.getpid())})
    monkeypatch.setattr(gpus.os, "getpid", lambda: 2**31 - 1)
    fake(Gpu("GPU-a", nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=left), SimpleNamespace(pid=used)]))
    ((described,), _, _) = gpus.describe(tmp_path)
    assert described["processes"] == [{"pid": left, "name": "sleep (left behind by a dlbench that was killed)"},
                                      {"pid": used, "name": "sleep"}]


def test_a_driver_that_hangs_is_not_waited_for_for_ever(fake, monkeypatch, tmp_path):
    release = threading.Event()
    fake(Gpu(), nvmlInit=lambda: release.wait(30))
    monkeypatch.setattr(gpus, "PATIENCE_SECONDS", 0.05)
    others = threading.enumerate()
    found = gpus.describe(tmp_path)
    assert found[:2] == ([], []) and found[2].startswith("no answer within 0 s; look for Xid errors")
    release.set()
    for thread in set(threading.enumerate()) - set(others):
        thread.join(30)


def test_a_fault_of_ours_is_not_taken_for_the_drivers(fake, tmp_path):
    fake(Gpu(nvmlDeviceGetName=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        gpus.describe(tmp_path)
