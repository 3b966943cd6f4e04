"""A campaign of seconds: runners of tests.faults stand in for frameworks, without a build."""

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from harness.cli import main, terminal
from harness.environments import recipes, store
from harness.environments.recipes import Framework
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.proof import questions
from harness.workers import answers
from harness.workers.worker import Worker
from tests.parallel import parallel_of


@pytest.fixture(scope="session")
def asked_once(tmp_path_factory) -> Callable[..., dict[str, Any]]:
    """Keep the reference's answers for all campaigns of stand-ins: each takes a process."""
    folder, known, really_asked = tmp_path_factory.mktemp("answers"), {}, questions.Questions._asked

    def asked(self, file, question, kind, command, **arguments):
        if questions.Worker is not Worker:
            return really_asked(self, file, question, kind, command, **arguments)
        asked_for = {**arguments, "out": "", "network": question.network.to_json()}
        inputs = [question.file(name).read_bytes() for name in (kind, "samples")]
        text = json.dumps([questions.ANSWERS, kind, command, asked_for], sort_keys=True)
        key = hashlib.sha256(b"".join([text.encode(), *inputs])).hexdigest()
        kept = folder / f"{key}.npz"
        if key not in known:
            known[key] = really_asked(self, file, question, kind, command, **arguments)
            if file.exists():
                shutil.copyfile(file, kept)
        elif kept.exists() and not file.exists():
            shutil.copyfile(kept, file)
        return known[key]

    return asked


@pytest.fixture
def stand_in(monkeypatch, asked_once) -> Callable[..., list[str]]:
    """Make frameworks of runners, `stand_in(good="reference", bad="processes.wire:Raises")`.

    Returns the list of what was built since. Runners of `ranks` and `controllers` train on
    several devices. Those of `engines` run trained networks.
    """

    def make(**modules: str) -> list[str]:
        recipe = {"python": "3.11", "packages": {"cpu": ["numpy"]},
                  "unsupported": {"cuda": "NumPy computes on the CPU"}}
        known = {
            name: Framework(title=name, distributions=["numpy"],
                            int8_summands="both_stored" if module.startswith("engines") else "",
                            **{"engine" if module.startswith("engines") else "runner":
                               f"tests.faults.{module}"},
                            files=[] if module.startswith("loading") else None,
                            default=np.__version__, releases={np.__version__: recipe},
                            parallel=parallel_of(module))
            for name, module in modules.items()
        }
        built = []

        def load(name: str, folder: Path | None = None) -> Framework:
            if name not in known:
                raise WrongUse(f"unknown framework {name}; Known: {', '.join(known)}")
            return known[name]

        def build(framework: str, release: str, device: str,
                  progress: Callable[[str], None]) -> Environment:
            built.append(framework)
            return Environment(framework, release, device, Path(sys.executable), framework, "3.11",
                               (f"numpy=={np.__version__}",), {}, "built")

        monkeypatch.setattr(questions.Questions, "_asked", asked_once)
        monkeypatch.setattr(recipes, "load", load)
        monkeypatch.setattr(store, "build", build)
        return built

    return make


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def dlbench(monkeypatch, capsys) -> Callable[..., Answer]:
    """Run the command in this process, as wide as a screen ever is."""
    # pytest-xdist sets COLUMNS before the console is made, which then keeps that width.
    monkeypatch.setattr(terminal.console, "width", 300)

    def call(*words: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["dlbench", *words])
        try:
            main.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def made_up_clock(monkeypatch) -> None:
    """Let workers answer times of another clock than the driver's."""
    monkeypatch.setattr(answers, "CLOCK_SECONDS", math.inf)


@pytest.fixture
def workers_in() -> Callable[[Path], list[psutil.Process]]:
    """Find the processes in the working folder of a campaign's workers: `workers_in(folder)`."""

    def find(folder: Path) -> list[psutil.Process]:
        logs = str(folder / "logs")
        return [process for process in psutil.process_iter() if working_folder(process) == logs]

    return find


def working_folder(process: psutil.Process) -> str | None:
    try:
        return process.cwd()
    except (psutil.Error, OSError):
        return None
