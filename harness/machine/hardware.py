"""What this machine is, and what would make its numbers untrustworthy.

`describe` asks the machine. `concerns` judges the answer alone, so a recorded machine can be judged
again. What cannot be read is None.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.environments.commands import ask
from harness.machine import gpus
from harness.validation import CHECKOUT
from runners.resources import processors_of, text_of

GIT_SECONDS = 20
LOAD_PER_CORE = 0.5
CORES_WANTED = 4
MEMORY_WANTED_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Concern:
    """One reason to distrust this machine's numbers, and what to do about it."""

    text: str
    remedy: str


def describe(root: Path = Path("/")) -> dict[str, Any]:
    """Describe processor, memory, system, GPUs and checkout as JSON, without the host's name.

    Sizes in bytes, clocks in MHz, power in watts. `root` is the folder that holds `sys` and `proc`.
    """
    found, links, gpu_error = gpus.describe(root)
    memory = psutil.virtual_memory()
    return {
        "cpu": _cpu(root),
        "memory": {"total_bytes": memory.total, "available_bytes": memory.available},
        "load_average": list(os.getloadavg()),
        "system": {"os": _os_name(root), "kernel": platform.release(),
                   "architecture": platform.machine(), "python": platform.python_version()},
        "gpus": found,
        "links": links,
        "gpu_error": gpu_error,
        "checkout": checkout(),
    }


def concerns(machine: dict[str, Any]) -> list[Concern]:
    """List what would make numbers of this `machine` (as `describe` returns it) untrustworthy."""
    cpu, found = machine["cpu"], []
    load = machine["load_average"][0]
    if load > LOAD_PER_CORE * cpu["logical"]:
        found.append(Concern(
            f"load average {load:.1f} on {cpu['logical']} processors: others are computing here",
            "wait until the machine is idle, or end what runs beside the benchmark"))
    if cpu["physical"] < CORES_WANTED:
        found.append(Concern(
            f"{cpu['physical']} cores: the driver, the worker and the system share them",
            f"use a machine with {CORES_WANTED} cores or more"))
    if cpu["quota_cores"] is not None and cpu["quota_cores"] < cpu["allowed"]:
        found.append(Concern(
            f"a control group grants {cpu['quota_cores']:g} processors' time on "
            f"{cpu['allowed']} processors",
            "start the container without a processor quota, pinned to whole processors instead"))
    if cpu["governor"] not in (None, "performance"):
        found.append(Concern(f"frequency governor {cpu['governor']}: the clock follows the load",
                             "sudo cpupower frequency-set --governor performance"))
    if cpu["turbo"]:
        found.append(Concern("turbo is on: the clock falls as the processor warms",
                             "switch it off in the firmware, or: echo 1 | sudo tee "
                             "/sys/devices/system/cpu/intel_pstate/no_turbo (Intel), echo 0 | sudo "
                             "tee /sys/devices/system/cpu/cpufreq/boost (others)"))
    if cpu["hypervisor"]:
        found.append(Concern(
            "virtual machine: neighbours share caches, memory bandwidth and processors",
            "use a machine of your own, or compare only trials of one campaign"))
    if machine["memory"]["available_bytes"] < MEMORY_WANTED_BYTES:
        found.append(Concern(
            f"{machine['memory']['available_bytes'] / 2**30:.1f} GiB of memory are free",
            f"free {MEMORY_WANTED_BYTES / 2**30:.0f} GiB, or leave out the largest networks"))
    if machine["gpu_error"]:
        found.append(Concern(f"the NVIDIA driver does not answer: {machine['gpu_error']}",
                             "reload or reinstall the driver"))
    for gpu in machine["gpus"]:
        found += spoilers(gpu) + _gpu_concerns(gpu) + _distance(gpu, cpu["numa"])
    return found


def spoilers(gpu: dict[str, Any]) -> list[Concern]:
    """List what spoils a GPU's numbers: other processes, and clocks that heat or power limit."""
    found, which = [], f"GPU {gpu['index']} ({gpu['name']})"
    if gpu["processes"]:
        others = ", ".join(f"{process['pid']} {process['name'] or '(name hidden)'}"
                           for process in gpu["processes"])
        found.append(Concern(f"{which}: other processes use it: {others}",
                             "end them yourself, or choose another GPU with CUDA_VISIBLE_DEVICES"))
    if gpu["throttle_reasons"]:
        found.append(Concern(
            f"{which}: its clock is held down by {', '.join(gpu['throttle_reasons'])}",
            "let it cool, raise its power limit, or lock its clocks with nvidia-smi -lgc"))
    return found


def checkout(folder: Path = CHECKOUT) -> dict[str, Any]:
    """Return dlbench's git commit and whether files other than results/ differ from it.

    Both are None outside a clone. A copy without history may state its commit in DLBENCH_COMMIT:
    it is then `stated`, and nobody has checked it.
    """
    # An installed copy may lie in another project's clone.
    top = _git(folder, "rev-parse", "--show-toplevel")
    commit = top and Path(top) == folder.resolve() and _git(folder, "rev-parse", "HEAD")
    status = _git(folder, "status", "--porcelain", "--", ".", ":(exclude)results")
    if commit:
        return {"commit": commit, "dirty": bool(status), "stated": False}
    stated = os.environ.get("DLBENCH_COMMIT") or None
    return {"commit": stated, "dirty": None, "stated": stated is not None}


def instructions(root: Path = Path("/")) -> set[str]:
    """Return what the processor can do beyond its basic instructions, as in avx2 and avx512_vnni.

    Empty where /proc/cpuinfo does not say, as on other processors than x86's.
    """
    return set(_cpuinfo(root).get("flags", "").split())


def _cpuinfo(root: Path) -> dict[str, str]:
    info = (text_of(root / "proc/cpuinfo") or "").splitlines()
    pairs = (line.partition(":") for line in reversed(info))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu(root: Path) -> dict[str, Any]:
    system = root / "sys/devices/system"
    fields = _cpuinfo(root)
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "logical": os.cpu_count(),
        "physical": psutil.cpu_count(logical=False) or os.cpu_count(),
        "allowed": len(os.sched_getaffinity(0)),
        "quota_cores": _quota_cores(root),
        "numa": _numa(system / "node"),
        "governor": text_of(system / "cpu/cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(system / "cpu"),
        "hypervisor": "hypervisor" in fields.get("flags", "").split(),
    }


def _numa(nodes: Path) -> list[dict[str, Any]]:
    """List the memory nodes: number, processors, and how many of these this process may use."""
    found = []
    for folder in sorted(nodes.glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        processors = text_of(folder / "cpulist") or ""
        allowed = len(os.sched_getaffinity(0).intersection(processors_of(processors)))
        found.append({"node": int(folder.name[4:]), "processors": processors, "allowed": allowed})
    return found


def _turbo(cpu: Path) -> bool | None:
    no_turbo, boost = text_of(cpu / "intel_pstate/no_turbo"), text_of(cpu / "cpufreq/boost")
    if no_turbo is not None:
        return bool(no_turbo == "0")
    return None if boost is None else bool(boost == "1")


def _quota_cores(root: Path) -> float | None:
    """Return how many processors' time the control group allows (cgroup v2), None if unlimited."""
    quota, _, period = (text_of(root / "sys/fs/cgroup/cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _os_name(root: Path) -> str:
    lines = (text_of(root / "etc/os-release") or "").splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields.get("PRETTY_NAME", platform.system()).strip('"')


def _git(folder: Path, *arguments: str) -> str | None:
    answer = ask(["git", "-C", str(folder), *arguments], GIT_SECONDS)
    return None if answer.returncode else answer.stdout.strip()


def _gpu_concerns(gpu: dict[str, Any]) -> list[Concern]:
    found, which = [], f"GPU {gpu['index']} ({gpu['name']})"
    if gpu["mig"]:
        found.append(Concern(f"{which}: MIG is on, so a trial sees a slice of the GPU",
                             "record the slice, or switch MIG off"))
    if gpu["persistence"] is False:
        found.append(Concern(
            f"{which}: persistence is off, so the driver unloads between processes",
            "sudo nvidia-smi -pm 1"))
    if _narrower(gpu["pcie_width"], gpu["pcie_width_max"]):
        found.append(Concern(f"{which}: {gpu['pcie_width']} PCIe lanes of {gpu['pcie_width_max']}",
                             "seat the card in a slot with all lanes"))
    limit, default = gpu["power_limit_watts"], gpu["power_limit_default_watts"]
    if _narrower(limit, default):
        found.append(Concern(f"{which}: its power limit is {limit:g} W, by default {default:g} W",
                             f"sudo nvidia-smi -pl {default:g}"))
    return found


def _distance(gpu: dict[str, Any], numa: list[dict[str, Any]]) -> list[Concern]:
    """List the GPUs whose memory node this process may not use: every copy crosses sockets."""
    which = f"GPU {gpu['index']} ({gpu['name']})"
    far = [node for node in numa if node["node"] == gpu["numa_node"] and not node["allowed"]]
    return [Concern(
        f"{which}: it is on memory node {node['node']}, and no processor there is allowed here",
        f"start dlbench on processors {node['processors']}, or choose a GPU of another node")
        for node in far]


def _narrower(now: float | None, most: float | None) -> bool:
    return now is not None and most is not None and now < most
