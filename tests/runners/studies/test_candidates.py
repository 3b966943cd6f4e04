"""A study's session: candidates that run, refuse or fail are told apart, and only what was asked for is timed."""

import numpy as np
import pytest

from runners.protocol import Unsupported
from runners.studies import candidates
from runners.studies.candidates import Candidate, StudySession, relative_error


class Bench(candidates.Bench):
    """Counts steps; one candidate refuses and one breaks."""

    steps = []

    def candidates(self, point):
        def refuses():
            raise Unsupported("no such instruction")

        def breaks():
            raise RuntimeError("status 5\nmore")

        yield "good", lambda: Candidate(lambda: self.steps.append(point["size"]), lambda: None, 2, 1e-7, workspace_bytes=64)
        yield "refused", refuses
        yield "broken", breaks


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
