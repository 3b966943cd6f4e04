"""What a machine is and what makes its numbers untrustworthy, from made-up machines and a made-up /sys."""

import copy
import json
import shutil
import subprocess

import pytest

from harness.machine import hardware
from tests.harness.files import write

GPU = {
    "index": 0, "cuda_index": 0, "name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "memory_used_bytes": 0,
    "driver": "580.1", "cuda": "13.0",
    "sm_mhz": 1980, "memory_mhz": 3201, "sm_max_mhz": 1980, "memory_max_mhz": 3201, "power_limit_watts": 700.0,
    "power_limit_default_watts": 700.0, "nvlinks": 0, "numa_node": None,
    "temperature_celsius": 30, "ecc": True, "persistence": True, "mig": False, "pcie_generation": 5, "pcie_generation_max": 5,
    "pcie_width": 16, "pcie_width_max": 16, "throttle_reasons": [], "processes": [],
}
GOOD = {
    "cpu": {"model": "A Processor", "logical": 16, "physical": 8, "allowed": 16, "quota_cores": None,
            "numa": [{"node": 0, "processors": "0-15", "allowed": 16}],
            "governor": "performance", "turbo": False, "hypervisor": False},
    "memory": {"total_bytes": 64 * 2**30, "available_bytes": 60 * 2**30},
    "load_average": [0.1, 0.1, 0.1],
    "system": {"os": "Debian", "kernel": "6.1", "architecture": "x86_64", "python": "3.11.7"},
    "gpus": [GPU],
    "links": [],
    "gpu_error": None,
    "checkout": {"commit": "abc", "dirty": False},
}


def test_a_quiet_machine_raises_no_concern():
    assert hardware.concerns(GOOD) == []


@pytest.mark.parametrize(("keys", "value", "text"), [
    (["load_average"], [8.1, 1.0, 1.0], "load average 8.1 on 16 processors: others are computing here"),
    (["cpu", "physical"], 3, "3 cores: the driver, the worker and the system share them"),
    (["cpu", "quota_cores"], 2.5, "a control group grants 2.5 processors' time on 16 processors"),
    (["cpu", "governor"], "powersave", "frequency governor powersave: the clock follows the load"),
    (["cpu", "turbo"], True, "turbo is on: the clock falls as the processor warms"),
    (["cpu", "hypervisor"], True, "virtual machine: neighbours share caches, memory bandwidth and processors"),
    (["memory", "available_bytes"], 2**30, "1.0 GiB of memory are free"),
    (["gpu_error"], "Driver/library version mismatch", "the NVIDIA driver does not answer: Driver/library version mismatch"),
    (["gpus", 0, "processes"], [{"pid": 7, "name": "miner"}, {"pid": 8, "name": None}],
     "GPU 0 (NVIDIA H200): other processes use it: 7 miner, 8 (name hidden)"),
    (["gpus", 0, "throttle_reasons"], ["software power cap"],
     "GPU 0 (NVIDIA H200): its clock is held down by software power cap"),
    (["gpus", 0, "mig"], True, "GPU 0 (NVIDIA H200): MIG is on, so a trial sees a slice of the GPU"),
    (["gpus", 0, "persistence"], False, "GPU 0 (NVIDIA H200): persistence is off, so the driver unloads between processes"),
    (["gpus", 0, "power_limit_watts"], 400.0, "GPU 0 (NVIDIA H200): its power limit is 400 W, by default 700 W"),
    (["gpus", 0, "pcie_width"], 8, "GPU 0 (NVIDIA H200): 8 PCIe lanes of 16"),
])
def test_each_fault_is_one_concern_with_a_remedy(keys, value, text):
    bad = copy.deepcopy(GOOD)
    *path, last = keys
    place = bad
    for key in path:
        place = place[key]
    place[last] = value
    found = hardware.concerns(bad)
    assert [concern.text for concern in found] == [text]
    assert found[0].remedy


def test_what_could_not_be_read_is_no_concern():
    blind = copy.deepcopy(GOOD)
    blind["cpu"].update(governor=None, turbo=None, quota_cores=None, numa=[])
    blind["gpus"] = [{**GPU, **{key: None for key in ("mig", "persistence", "ecc", "pcie_width", "pcie_width_max", "numa_node",
                                                       "power_limit_watts", "power_limit_default_watts")}}]
    assert hardware.concerns(blind) == []


def test_this_machine_is_described_as_json_and_can_be_judged():
    described = json.loads(json.dumps(hardware.describe()))
    assert described.keys() == GOOD.keys() and described["cpu"].keys() == GOOD["cpu"].keys()
    assert described["cpu"]["logical"] >= described["cpu"]["physical"] >= 1
    assert all(concern.remedy for concern in hardware.concerns(described))


def test_the_processor_is_read_from_proc_and_sys(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda pid: {0, 1})
    root = write(tmp_path, {
        "proc/cpuinfo": "processor : 0\nmodel name : Epyc\nflags : fpu hypervisor\n\nprocessor : 1\nmodel name : Epyc",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
        "sys/devices/system/node/node0/cpulist": "0-1",
        "sys/devices/system/node/node1/cpulist": "2-3",
        "sys/fs/cgroup/cpu.max": "150000 100000",
    })
    cpu = hardware._cpu(root)
    assert {key: cpu[key] for key in ("model", "governor", "turbo", "numa", "quota_cores", "hypervisor")} == {
        "model": "Epyc", "governor": "powersave", "turbo": True, "quota_cores": 1.5, "hypervisor": True,
        "numa": [{"node": 0, "processors": "0-1", "allowed": 2}, {"node": 1, "processors": "2-3", "allowed": 0}]}


def test_a_gpu_that_is_beside_no_allowed_processor_is_a_concern():
    far = copy.deepcopy(GOOD)
    far["cpu"]["numa"].append({"node": 1, "processors": "16-31", "allowed": 0})
    assert hardware.concerns(far) == []
    far["gpus"][0]["numa_node"] = 1
    assert [(concern.text, concern.remedy) for concern in hardware.concerns(far)] == [
        ("GPU 0 (NVIDIA H200): it is on memory node 1, and no processor there is allowed here",
         "start dlbench on processors 16-31, or choose a GPU of another node")]


@pytest.mark.parametrize(("files", "turbo"), [
    ({"intel_pstate/no_turbo": "1"}, False), ({"cpufreq/boost": "1"}, True), ({"cpufreq/boost": "0"}, False), ({}, None),
])
def test_turbo_is_read_in_either_of_its_two_forms(tmp_path, files, turbo):
    assert hardware._turbo(write(tmp_path, files)) is turbo


def test_a_folder_that_is_no_clone_has_no_commit(tmp_path):
    assert hardware.checkout(tmp_path) == {"commit": None, "dirty": None, "stated": False}


@pytest.mark.skipif(not shutil.which("git"), reason="no git here: apt-get install git")
def test_results_of_an_earlier_campaign_leave_a_checkout_clean_and_other_files_do_not(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=b", *words],
                       check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "begin")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "trials.csv").write_text("")
    assert hardware.checkout(tmp_path)["dirty"] is False
    (tmp_path / "runner.py").write_text("")
    assert hardware.checkout(tmp_path)["dirty"] is True
