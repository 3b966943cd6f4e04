"""A study's session: candidates that run, refuse or fail are told apart, and only what was asked for is timed."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from runners.protocol import Task, Unsupported
from runners.studies import candidates
from runners.studies.candidates import Candidate, StudySession, relative_error


class Bench(candidates.Bench):
    """Counts steps; one candidate refuses and one breaks."""

    REFUSALS = re.compile("no kernel")
    steps = []

    def candidates(self, point):
        def refuses():
            raise Unsupported("no such instruction")

        def breaks():
            raise RuntimeError("status 5\nmore")

        def lacks():
            raise RuntimeError("no kernel for fp16\nmore")

        yield "good", lambda: Candidate(lambda: self.steps.append(point["size"]), lambda: None, 2, 1e-7, workspace_bytes=64)
        yield "refused", refuses
        yield "broken", breaks
        yield "lacking", lacks


@pytest.fixture
def session():
    Bench.steps = []
    opened = StudySession(Bench)
    opened.open(device="cpu", threads=1)
    return opened


def test_each_candidate_has_its_status_and_reason(session):
    assert session.place({"size": 3}) == {"candidates": {
        "good": {"status": "ok", "reason": "", "workspace_bytes": 64, "operations": 2, "error": 1e-7},
        "refused": {"status": "unsupported", "reason": "no such instruction"},
        "broken": {"status": "failed", "reason": "RuntimeError: status 5"},
        "lacking": {"status": "unsupported", "reason": "RuntimeError: no kernel for fp16"},
    }}


def test_windows_come_in_the_order_asked_for_and_run_their_steps(session):
    session.place({"size": 3})
    windows = session.time([["good", 4], ["good", 1]])["windows"]
    assert len(windows) == 2 and all(stop >= start for start, stop in windows)
    assert Bench.steps == [3] * 5


def test_a_new_point_forgets_the_candidates_before(session):
    session.place({"size": 3})
    session.bench.candidates = lambda point: iter(())
    session.place({"size": 4})
    with pytest.raises(KeyError):
        session.time([["good", 1]])


@pytest.mark.parametrize(("computed", "error"), [([3.0, 4.0], 0.0), ([3.0, 4.5], 0.1), ([0.0, 0.0], 1.0)])
def test_the_relative_error_is_that_of_l2_norms(computed, error):
    assert relative_error(np.array(computed), np.array([3.0, 4.0])) == pytest.approx(error)


def test_on_a_gpu_the_kernels_of_one_step_are_named_the_longest_first(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "fake_cupti"))
    for name in ("cupti", "cupti.cupti"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    cupti = importlib.import_module("cupti.cupti")

    def launch():
        for name, start, end in (("short", 0, 10), ("long", 10, 90), ("short", 90, 99)):
            cupti.launch(cupti.ActivityKind["CONCURRENT_KERNEL"], start + 1, end + 1, name=name)

    bench = Bench(Task(None, None, "cuda"))
    traced = Candidate(launch, lambda: None, compute=launch)
    assert bench.called(traced) == bench.called(traced) == ["long", "short"]
    assert bench.called(Candidate(launch, lambda: None)) == []


def test_on_a_cpu_a_study_without_operators_says_so(session):
    session.bench.candidates = lambda point: [("a", lambda: Candidate(lambda: None, lambda: None, compute=lambda: None))]
    session.place({"size": 3})
    with pytest.raises(Unsupported, match="this study sees no operators on a CPU"):
        session.called(["a"])
