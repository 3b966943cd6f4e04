"""Describes this machine's NVIDIA GPUs, their links, and the processes on them.

Nothing is judged, set or ended here. What a GPU cannot tell is None.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from concurrent import futures
from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
import pynvml

from analysis.trials.counters import THROTTLES
from harness.machine import amd
from harness.machine.nvml import ask, event_reasons, handles, visible_indices
from harness.workers.worker import DRIVER

# nvmlGpuTopologyLevel_t: what a transfer between two GPUs passes.
PATHS = {
    0: "PCIe within one board", 10: "one PCIe switch", 20: "several PCIe switches",
    30: "one PCIe host bridge", 40: "host bridges of one NUMA node",
    50: "the link between processor sockets",
}
# The keys of a description. Only a few are known of an AMD GPU.
KEYS = ("name", "memory_bytes", "memory_used_bytes", "driver", "cuda", "sm_mhz", "memory_mhz",
        "sm_max_mhz", "memory_max_mhz", "power_limit_watts", "power_limit_default_watts",
        "temperature_celsius", "ecc", "persistence", "mig", "pcie_generation",
        "pcie_generation_max", "pcie_width", "pcie_width_max", "nvlinks", "numa_node",
        "throttle_reasons", "processes")
# NVML_P2P_CAPS_INDEX_NVLINK.
NVLINK_CAPABILITY = 2
MOST_NVLINKS = 36
# For all GPUs; a driver that has to load first takes seconds a GPU.
PATIENCE_SECONDS = 120.0

Described = tuple[list[dict[str, Any]], list[dict[str, Any]], str | None]


def describe(root: Path) -> Described:
    """Describe every GPU and every pair's link; ([], [], why) if the driver does not answer.

    Describing times out if the driver hangs. Sizes are in bytes, clocks in MHz, power in watts.
    `cuda_index` is None where CUDA_VISIBLE_DEVICES hides the GPU.
    """
    answered = futures.Future[Described]()

    def run() -> None:
        try:
            answered.set_result(_describe(root))
        except BaseException as fault:
            answered.set_exception(fault)

    # Not a pool's thread, which Python would wait for at the end.
    threading.Thread(target=run, daemon=True).start()
    try:
        return answered.result(PATIENCE_SECONDS)
    except futures.TimeoutError:
        return [], [], (f"no answer within {PATIENCE_SECONDS:.0f} s; "
                        "look for Xid errors in the kernel's log (dmesg)")


def _describe(root: Path) -> Described:
    try:
        with handles() as found:
            uuids = [ask("nvmlDeviceGetUUID", handle) or "" for handle in found]
            seen = visible_indices(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
            gpus = [{"index": index, "cuda_index": seen.index(index) if index in seen else None,
                     **_gpu(handle, root)} for index, handle in enumerate(found)]
            return gpus, links(found), None
    # Also for a GPU that fell off the bus.
    except pynvml.NVMLError as error:
        if not isinstance(error, pynvml.NVMLError_LibraryNotFound):
            return [], [], str(error)
        return amd.describe(dict.fromkeys(KEYS)), [], None


def links(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Return for each pair of GPUs what connects them: NVLink, or the PCIe path."""
    pairs = []
    for (first, one), (second, other) in combinations(enumerate(found), 2):
        status = ask("nvmlDeviceGetP2PStatus", one, other, NVLINK_CAPABILITY)
        nvlink = status == pynvml.NVML_P2P_STATUS_OK
        level = ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
        pairs.append({"gpus": [first, second], "path": "NVLink" if nvlink else PATHS.get(level)})
    return pairs


def is_ours(pid: int) -> bool:
    """Return whether a process is this driver, descends from it, or has ended already."""
    try:
        process = psutil.Process(pid)
        family = (pid, *(parent.pid for parent in process.parents()))
        return os.getpid() in family or process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _gpu(handle: Any, root: Path) -> dict[str, Any]:
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2")
    limit, default_limit = (ask(f"nvmlDeviceGetPowerManagement{kind}", handle)
                            for kind in ("Limit", "DefaultLimit"))
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    reasons = event_reasons(handle) or 0
    return {
        "name": ask("nvmlDeviceGetName", handle),
        "memory_bytes": memory and memory.total,
        "memory_used_bytes": memory and memory.used,
        "driver": ask("nvmlSystemGetDriverVersion"),
        "cuda": cuda and f"{cuda // 1000}.{cuda % 1000 // 10}",
        "sm_mhz": ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM),
        "sm_max_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
        "memory_max_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_MEM),
        "power_limit_watts": limit and limit / 1000,
        "power_limit_default_watts": default_limit and default_limit / 1000,
        "temperature_celsius": ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        "ecc": _flag(ask("nvmlDeviceGetEccMode", handle)),
        "persistence": _flag(ask("nvmlDeviceGetPersistenceMode", handle)),
        "mig": _flag(ask("nvmlDeviceGetMigMode", handle)),
        "pcie_generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "nvlinks": sum(bool(ask("nvmlDeviceGetNvLinkState", handle, link))
                       for link in range(MOST_NVLINKS)),
        "numa_node": _numa_node(handle, root),
        "throttle_reasons": [reason for bit, reason in THROTTLES.items() if reasons & bit],
        "processes": _processes(handle),
    }


def _numa_node(handle: Any, root: Path) -> int | None:
    """Return the memory node next to a GPU; the kernel writes -1 if there is only one."""
    bus = ask("nvmlDeviceGetPciInfo", handle)
    name = bus.busId.decode() if bus and isinstance(bus.busId, bytes) else bus and str(bus.busId)
    # NVML writes the domain with eight digits, the kernel with four.
    try:
        node = int((root / f"sys/bus/pci/devices/{str(name)[-12:].lower()}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _processes(handle: Any) -> list[dict[str, Any]]:
    """List other processes that compute on this GPU; the name is None if it is not visible."""
    running = ask("nvmlDeviceGetComputeRunningProcesses", handle) or []
    return [{"pid": process.pid, "name": _process_name(process.pid)}
            for process in running if not is_ours(process.pid)]


def _process_name(pid: int) -> str | None:
    """Return a process's name, and whether it is a worker whose driver is gone."""
    try:
        process = psutil.Process(pid)
        name = str(process.name())
    except psutil.Error:
        return None
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        driver = process.environ().get(DRIVER)
        if driver and not psutil.pid_exists(int(driver)):
            return f"{name} (left behind by a dlbench that was killed)"
    return name


def _flag(value: Any) -> bool | None:
    """A mode, or the current one of NVML's (current, pending)."""
    return None if value is None else bool(value[0] if isinstance(value, Sequence) else value)
