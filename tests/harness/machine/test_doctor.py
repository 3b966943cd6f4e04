"""What `dlbench doctor` finds and prints, from made-up machines, frameworks and data sets; nothing here is asked or read."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness.data import data_sets
from harness.environments import interpreters, recipes, store
from harness.errors import WrongUse
from harness.machine import doctor, hardware

MACHINE = {
    "cpu": {"model": "A Processor", "logical": 16, "physical": 8, "allowed": 4, "quota_cores": None,
            "numa": [{"node": 0, "processors": "0-15", "allowed": 4}],
            "governor": "performance", "turbo": False, "hypervisor": False},
    "memory": {"total_bytes": 64 * 2**30, "available_bytes": 60 * 2**30},
    "load_average": [0.1, 0.1, 0.1],
    "system": {"os": "Debian", "kernel": "6.1", "architecture": "x86_64", "python": "3.11.7"},
    "gpus": [],
    "links": [],
    "gpu_error": None,
    "checkout": {"commit": "0123456789abcdef", "dirty": True},
}
GPU = {"index": 0, "cuda_index": 0, "name": "NVIDIA H200", "memory_bytes": 140 * 2**30, "driver": "580.1", "cuda": "13.0",
       "sm_mhz": 345, "sm_max_mhz": 1980, "power_limit_watts": 700.0, "pcie_generation_max": 5, "pcie_width": 16, "nvlinks": 18,
       "ecc": True, "persistence": False, "mig": None, "numa_node": 1}

OLD = """\
title: Old
runner: runners.old_runner
distributions: [old]
default: "1.0"
releases:
  "1.0":
    python: "3.6"
    packages: {cpu: [old==1.0]}
    unsupported: {cuda: "its wheel has no [GPU] code"}
"""
NEW = """\
title: New
runner: runners.new_runner
distributions: [new]
default: "2.0"
releases:
  "2.0":
    python: "3.11"
    packages: {cpu: [new==2.0], cuda: [new==2.0]}
"""
REASON = "Python 3.6 is needed and was not found"


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """A machine with two frameworks and three sets; returns the folder of the frameworks' files and what was looked for."""
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)
    looked = []

    def find_python(versions):
        looked.append(versions)
        if versions == ("3.6",):
            raise WrongUse(REASON)
        return interpreters.Python(versions[0], Path(f"/usr/bin/python{versions[0]}"))

    def available(name):
        if name == "broken":
            raise WrongUse("data/broken/x.gz: not the file that configs/data.yaml names")
        return SimpleNamespace(text="5 digits of a test") if name == "here" else None

    load, names = recipes.load, recipes.names
    built = SimpleNamespace(interpreter=Path(".envs/new-2.0-cpu-1/bin/python"), python="3.11.7")
    monkeypatch.setattr(recipes, "names", lambda folder=tmp_path: names(folder))
    monkeypatch.setattr(recipes, "load", lambda name: load(name, tmp_path))
    monkeypatch.setattr(interpreters, "find", find_python)
    monkeypatch.setattr(store, "find", lambda name, release, kind: built if (name, kind) == ("new", "cpu") else None)
    monkeypatch.setattr(data_sets, "names", lambda: ["here", "absent", "broken"])
    monkeypatch.setattr(data_sets, "available", available)
    monkeypatch.setattr(hardware, "describe", lambda: MACHINE)
    return SimpleNamespace(folder=tmp_path, looked=looked)


def printed(found, width=80):
    console = Console(file=io.StringIO(), width=width)
    doctor.show(found, console)
    return console.file.getvalue()


def test_each_framework_has_its_release_its_python_and_its_devices(fakes):
    assert doctor.examine()["frameworks"] == [
        {"name": "new", "release": "2.0", "python": "3.11", "interpreter": "/usr/bin/python3.11", "reason": None, "devices": {
            "cpu": {"supported": True, "reason": None, "environment": ".envs/new-2.0-cpu-1/bin/python"},
            "cuda": {"supported": True, "reason": None, "environment": None}}},
        {"name": "old", "release": "1.0", "python": "3.6", "interpreter": None, "reason": REASON, "devices": {
            "cpu": {"supported": True, "reason": None, "environment": None},
            "cuda": {"supported": False, "reason": "its wheel has no [GPU] code", "environment": None}}},
    ]


def test_a_set_is_here_absent_or_wrong_and_says_so(fakes):
    assert doctor.examine()["data"] == [
        {"name": "here", "text": "5 digits of a test", "reason": None},
        {"name": "absent", "text": None, "reason": "not here: dlbench data fetch absent"},
        {"name": "broken", "text": None, "reason": "data/broken/x.gz: not the file that configs/data.yaml names"},
    ]


def test_the_examination_is_json_with_the_machine_and_its_concerns(fakes, monkeypatch):
    monkeypatch.setattr(hardware, "concerns", lambda described: [hardware.Concern("too warm", "open a window")])
    found = doctor.examine()
    assert json.loads(json.dumps(found)) == found
    assert (found["machine"], found["concerns"]) == (MACHINE, [{"text": "too warm", "remedy": "open a window"}])


def test_a_python_that_two_frameworks_want_is_looked_for_once(fakes):
    (fakes.folder / "old.yaml").write_text(OLD.replace("3.6", "3.11"))
    doctor.examine()
    assert fakes.looked == [("3.11",)]


def test_the_python_of_a_built_environment_is_shown_where_a_newer_one_is_here(fakes):
    (fakes.folder / "new.yaml").write_text(NEW.replace('"3.11"', "3.10 to 3.13"))
    (fakes.folder / "old.yaml").write_text(OLD.replace('"3.6"', "3.10 to 3.13"))
    assert [each["python"] for each in doctor.examine()["frameworks"]] == ["3.11", "3.13"]


def test_a_wrong_file_hides_no_other_framework(fakes):
    (fakes.folder / "old.yaml").write_text(OLD.replace("default:", "defautl:"))
    new, old = doctor.examine()["frameworks"]
    assert new["release"] == "2.0"
    assert (old["release"], old["devices"]) == (None, {})
    assert "defautl: unknown key; did you mean default?" in old["reason"]
    assert "its file is wrong" in printed(doctor.examine())


def test_the_page_without_a_gpu_has_no_cuda_column(fakes):
    assert [line.rstrip() for line in printed(doctor.examine()).splitlines()] == [
        "A Processor: 8 cores, 16 processors, 4 allowed here",
        "60.0 of 64.0 GiB memory free, load average 0.1",
        "Debian, Linux 6.1, x86_64, Python 3.11.7",
        "no NVIDIA GPU",
        "dlbench commit 0123456789ab with changes that are not committed",
        "",
        "Nothing here makes numbers untrustworthy.",
        "",
        "┏━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━━━━━━━┓",
        "┃ framework ┃ release ┃ Python ┃ cpu              ┃",
        "┡━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━━━━━━━┩",
        "│ new       │ 2.0     │ 3.11   │ built            │",
        "│ old       │ 1.0     │ 3.6    │ needs Python 3.6 │",
        "└───────────┴─────────┴────────┴──────────────────┘",
        "  Python 3.6 is needed and was not found",
        "",
        "here: 5 digits of a test",
        "absent: not here: dlbench data fetch absent",
        "broken: data/broken/x.gz: not the file that configs/data.yaml names",
    ]


def test_with_a_gpu_the_reason_for_no_cuda_is_printed_with_its_brackets(fakes):
    page = printed({**doctor.examine(), "machine": {**MACHINE, "gpus": [GPU]}})
    assert "GPU 0: NVIDIA H200, 140 GiB, driver 580.1, CUDA 13.0\n" in page
    assert "  345 of 1980 MHz, limit 700 W, PCIe 5 x16, 18 NVLinks, ECC on, persistence off\n" in page
    assert "memory node" not in page and "between" not in page
    assert "│ new       │ 2.0     │ 3.11   │ built            │ not built   │" in page
    assert "│ old       │ 1.0     │ 3.6    │ needs Python 3.6 │ unsupported │" in page
    assert "old on cuda: its wheel has no [GPU] code" in page
    assert "dlbench run builds what it needs; dlbench env build NAME builds now" in page


def test_nodes_and_links_are_listed_where_there_are_several(fakes):
    nodes = [{"node": 0, "processors": "0-7", "allowed": 4}, {"node": 1, "processors": "8-15", "allowed": 0}]
    gpus = [{**GPU, "index": index, "cuda_index": None if index == 2 else index} for index in range(3)]
    links = [{"gpus": [0, 1], "path": "NVLink"}, {"gpus": [0, 2], "path": "NVLink"}, {"gpus": [1, 2], "path": None}]
    found = {**MACHINE, "cpu": {**MACHINE["cpu"], "numa": nodes}, "gpus": gpus, "links": links}
    page = printed({**doctor.examine(), "machine": found}, width=200)
    assert "memory node 0: processors 0-7\nmemory node 1: processors 8-15, GPU 0, GPU 1, GPU 2\n" in page
    assert "GPU 2: NVIDIA H200, 140 GiB, driver 580.1, CUDA 13.0, hidden by CUDA_VISIBLE_DEVICES\n" in page
    assert "between GPUs 0-1, 0-2: NVLink\nbetween GPUs 1-2: not known\n" in page
    assert doctor._link_lines(links[:2]) == ["between all pairs of GPUs: NVLink"]


def test_text_from_outside_is_no_markup(fakes):
    found = doctor.examine()
    found["concerns"] = [{"text": "GPU 0: other processes use it: 7 [/red] miner", "remedy": "end [bold]it"}]
    found["data"][0]["text"] = "digits of [/] x"
    page = printed(found)
    assert "7 [/red] miner" in page and "    end [bold]it" in page and "digits of [/] x" in page


def test_the_page_fits_into_80_columns(fakes):
    found = doctor.examine()
    found["concerns"] = [{"text": "a reason " * 20, "remedy": "a remedy " * 20}]
    found["frameworks"][1]["reason"] = "no Python " * 30
    assert max(len(line) for line in printed(found).splitlines()) <= 80
