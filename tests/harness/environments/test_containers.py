"""Exact command lines for each engine, and the whole path through a stand-in engine that runs the command on the host."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.records import reader
from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.environments import containers, recipes, store
from harness.environments.containers import Container
from harness.environments.recipes import Framework
from harness.environments.store import BuildFailed, Environment
from harness.plan.suite import Suite
from harness.validation import CHECKOUT
from harness.workers.worker import Failed, Worker

WORDS = ["python3", "-m", "runners", "runners.mxnet.runner"]
VARIABLES = {"DLBENCH_WORKER": "token", "PYTHONPATH": f"{CHECKOUT}:/opt/caffe/python", "OMP_NUM_THREADS": "2"}
BASH = 'PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}" exec "$@"'
USER = f"{os.getuid()}:{os.getgid()}"
SUITE = {"frameworks": "one", "networks": "tiny_fcn", "batches": 4, "device": "cpu", "threads": 1, "processes": 1, "windows": 1,
         "window_seconds": 0.001, "peaks": False, "data": "host"}

# What the tests need of docker: `run` executes the words behind the image here, `kill` notes the name that it was told.
ENGINE = """#!/usr/bin/env python3
import os, sys
with open(os.environ["ENGINE_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:3]) + "\\n")
if sys.argv[1] == "version":
    print("28.0")
elif sys.argv[1:3] == ["image", "inspect"]:
    print('[{"Id": "sha256:1", "RepoDigests": ["example.org/one@sha256:0123"]}]')
elif sys.argv[1] == "run":
    words = sys.argv[2:]
    for place, word in enumerate(words):
        if word == "--env":
            name, _, value = words[place + 1].partition("=")
            os.environ[name] = value
    place = words.index("--entrypoint")
    print("a banner that only an entry point would print") if words[place + 1] != "bash" else None
    os.chdir(words[words.index("--workdir") + 1])
    os.execvp("bash", ["bash", *words[place + 3:]])
"""


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Path:
    """A stand-in for docker, alone on PATH beside the system's own programs; returns its log of what it was asked."""
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "docker").write_text(ENGINE)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("ENGINE_LOG", str(folder / "log"))
    monkeypatch.setenv("DLBENCH_ENVS", str(tmp_path / "envs"))
    return folder / "log"


@pytest.fixture
def contained(monkeypatch):
    """Make frameworks out of runners whose only recipe is an image: `contained(one="reference")`."""

    def make(**modules):
        recipe = {"python": "3.11", "container": {"cpu": {"image": "example.org/one:1", "python": Path(sys.executable).name}},
                  "unsupported": {"cuda": "NumPy computes on the CPU"}}
        listed = {"python": "3.11", "packages": {"cpu": ["numpy"]}, "unsupported": {"cuda": "NumPy computes on the CPU"}}
        release = f"{np.__version__}-image"
        known = {name: Framework(title=name, runner=f"tests.faults.{module}", distributions=["numpy"], default=release,
                                 releases={release: recipe, "1.0": listed}) for name, module in modules.items()}
        monkeypatch.setattr(recipes, "load", lambda name, folder=None: known[name])

    return make


def test_dockers_command_line_is_exact():
    container = Container("docker", "image@sha256:0", "cuda", folders=("/tmp/scratch",))
    assert container.command("dlbench-token", WORDS, VARIABLES, Path("/records/logs")) == [
        "docker", "run", "--rm", "--init", "--interactive", "--name", "dlbench-token", "--network", "none", "--user", USER,
        "--gpus", "all", "--volume", f"{CHECKOUT}:{CHECKOUT}:ro", "--volume", "/records/logs:/records/logs",
        "--volume", "/tmp/scratch:/tmp/scratch", "--workdir", "/records/logs", "--env", "HOME=/tmp",
        "--env", "DLBENCH_WORKER=token", "--env", "OMP_NUM_THREADS=2", "--entrypoint", "bash", "image@sha256:0",
        "-c", BASH, f"{CHECKOUT}:/opt/caffe/python", *WORDS]


def test_podman_maps_the_user_and_names_gpus_by_cdi():
    words = Container("podman", "image", "cuda").command("dlbench-token", WORDS, VARIABLES, Path("/logs"))
    assert words[:16] == ["podman", "run", "--rm", "--init", "--interactive", "--name", "dlbench-token", "--network", "none",
                          "--user", USER, "--userns", "keep-id", "--device", "nvidia.com/gpu=all", "--volume"]


def test_apptainers_command_line_is_exact():
    container = Container("apptainer", "/images/one.sif", "cuda", setup=". /cntk/activate-cntk", folders=("/tmp/scratch",))
    assert container.command("dlbench-token", WORDS, VARIABLES, Path("/logs")) == [
        "apptainer", "exec", "--containall", "--cleanenv", "--net", "--network", "none", "--nv",
        "--bind", f"{CHECKOUT}:{CHECKOUT}:ro", "--bind", "/logs", "--bind", "/tmp/scratch", "--pwd", "/logs",
        "--env", "DLBENCH_WORKER=token", "--env", "OMP_NUM_THREADS=2", "/images/one.sif", "bash",
        "-c", f". /cntk/activate-cntk && {BASH}", f"{CHECKOUT}:/opt/caffe/python", *WORDS]


@pytest.mark.parametrize(("engine_name", "words"), [("docker", ["--user", "0:0"]), ("podman", ["--user", "0:0"]),
                                                    ("apptainer", ["--fakeroot"])])
def test_an_image_whose_python_is_roots_runs_as_root(engine_name, words):
    line = Container(engine_name, "image", "cpu", root=True).command("name", WORDS, VARIABLES, Path("/logs"))
    place = line.index(words[0])
    assert line[place:place + len(words)] == words and "--userns" not in line


@pytest.mark.parametrize("engine_name", containers.ENGINES)
def test_a_container_for_the_cpu_asks_for_no_gpu(engine_name):
    words = Container(engine_name, "image", "cpu").command("name", WORDS, VARIABLES, Path("/logs"))
    assert not {"--gpus", "--nv", "nvidia.com/gpu=all"} & set(words)


def test_images_are_fetched_by_each_engines_own_command(tmp_path):
    assert containers.pull_command("docker", "a/b:1", tmp_path) == ["docker", "pull", "a/b:1"]
    assert containers.pull_command("apptainer", "a/b:1", tmp_path) == [
        "apptainer", "pull", "--force", str(tmp_path / "a_b_1.sif"), "docker://a/b:1"]
    assert containers.pinned("apptainer", "a/b:1", tmp_path) is None
    (tmp_path / "a_b_1.sif").touch()
    assert containers.pinned("apptainer", "a/b:1", tmp_path) == str(tmp_path / "a_b_1.sif")


def test_the_first_engine_that_answers_is_taken_and_the_others_faults_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert containers.engine() == (None, "none of docker, podman, apptainer is on PATH")
    for name, script in (("docker", "echo 'no daemon here' >&2; exit 1"), ("podman", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert containers.engine() == ("podman", "")
    (tmp_path / "podman").unlink()
    assert containers.engine() == (None, "docker does not answer (no daemon here)")


def run(folder, **suite):
    prepared = campaign.prepare(Suite.model_validate({**SUITE, **suite}), "suite.yaml")
    campaign.run(prepared, folder, Listener())
    return reader.read(folder)


def test_a_whole_campaign_runs_through_an_engine(engine, contained, tmp_path):
    contained(one="reference")
    done = run(tmp_path / "campaign")
    row = done.processes.iloc[0]
    assert (row["status"], row["check"], row["reason"]) == ("ok", "same", "")
    environment = done.meta["environments"][f"one=={np.__version__}-image"]
    assert environment["container"] == {"engine": "docker", "image": "example.org/one@sha256:0123", "device": "cpu"}
    assert environment["origin"] == "container" and f"numpy=={np.__version__}" in environment["packages"]
    assert "folders" not in str(environment)
    asked = engine.read_text().splitlines()
    assert asked.count("run --rm") == 2  # the probe and the process
    assert asked.count("pull example.org/one:1") == 0  # it was there


def test_without_an_engine_the_trial_is_unsupported_and_says_why(contained, tmp_path, monkeypatch):
    contained(one="reference")
    monkeypatch.setenv("PATH", str(tmp_path))
    row = run(tmp_path / "campaign").meta["trials"][0]
    assert (row["status"], row["reason"]) == ("unsupported", "runs in a container (example.org/one:1), and no engine is here: "
                                                             "none of docker, podman, apptainer is on PATH")


def test_an_image_with_another_release_is_refused(engine, contained, monkeypatch):
    contained(one="reference")
    monkeypatch.setattr(store.probe, "ask", lambda command: {"python": "3.8", "packages": [["numpy", "1.2.3"]]})
    with pytest.raises(BuildFailed, match=r"example\.org/one:1: release .*-image was asked for, the image holds 1\.2\.3"):
        store.build("one", f"{np.__version__}-image", "cpu", print)


def test_ending_a_worker_ends_its_container_by_name(engine, tmp_path):
    container = Container("docker", "image", "cpu")
    worker = Worker(sys.executable, "tests.faults.processes.wire:Hang", tmp_path / "logs" / "log", container=container)
    worker.ask("hello", limit=60)
    worker.end()
    assert engine.read_text().splitlines() == ["run --rm", f"kill dlbench-{worker.token}"]
    assert worker.process.returncode is not None


def test_a_worker_that_closed_by_itself_is_not_killed(engine, tmp_path):
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "logs" / "log",
                container=Container("docker", "image", "cpu")) as worker:
        worker.ask("hello", limit=60)
        worker.ask("close", limit=60)
        worker.process.wait(timeout=60)
    assert engine.read_text().splitlines() == ["run --rm"]


def test_a_container_that_breaks_is_a_failure_with_its_log(engine, tmp_path):
    container = Container("docker", "image", "cpu", setup="echo 'no such library' >&2; exit 7")
    with Worker(sys.executable, "tests.faults.reference", tmp_path / "logs" / "log", container=container) as worker, \
            pytest.raises(Failed, match="exit code 7; log: no such library"):
        worker.ask("hello", limit=60)


def test_the_images_own_pythonpath_stands_behind_the_checkout(tmp_path):
    words = Container("docker", "image", "cpu").command("name", ["env"], {"PYTHONPATH": "/checkout"}, tmp_path)
    inner = words[words.index("image") + 1:]
    told = subprocess.run(["bash", *inner], env={"PATH": os.environ["PATH"], "PYTHONPATH": "/opt/caffe/python"}, text=True,
                          capture_output=True, check=True).stdout
    assert "PYTHONPATH=/checkout:/opt/caffe/python\n" in told


def test_only_containers_are_told_of_the_shared_folder(tmp_path):
    inside = Environment("one", "1", "cpu", Path("python3"), "key", "3.8", (), {}, "container", Container("docker", "image", "cpu"))
    outside = Environment("two", "1", "cpu", Path("python3"), "key", "3.8", (), {}, "built")
    broken = BuildFailed("no wheel")
    ready = store.sharing({"one": inside, "two": outside, "three": broken}, tmp_path)
    assert ready["one"].container.folders == (str(tmp_path),)
    assert (ready["two"], ready["three"]) == (outside, broken)


@pytest.mark.parametrize(("name", "release"), [(name, release) for name in recipes.names()
                                               for release, recipe in recipes.load(name).releases.items() if recipe.container])
def test_every_shipped_image_is_pinned_by_a_tag_and_can_be_named_in_a_suite(name, release):
    assert recipes.parse(f"{name}=={release}") == (name, release)
    for image in recipes.load(name).releases[release].container.values():
        repository, _, tag = image.image.rpartition(":")
        assert "/" in repository and tag not in ("", "latest")
