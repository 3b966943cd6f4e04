"""Following a job through a queue that a stand-in for Slurm's commands describes."""

import pytest

from harness.cluster import slurm
from harness.errors import WrongUse

UNREACHABLE = "squeue: error: Unable to contact slurm controller"


@pytest.fixture
def squeue(monkeypatch):
    """Answer `squeue` with these lines in turn, the last for ever; an error is raised."""
    def answer(*lines):
        left, asked = list(lines), []

        def ask(command):
            asked.append(command)
            line = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(line, Exception):
                raise line
            return line

        monkeypatch.setattr(slurm, "ask", ask)
        monkeypatch.setattr(slurm, "POLL_SECONDS", 0.0)
        return asked

    return answer


def test_a_controller_that_starts_again_ends_nothing(squeue):
    asked = squeue("RUNNING|n1|None", WrongUse(UNREACHABLE), "RUNNING|n1|None", "COMPLETED|n1|None")
    said: list[str] = []
    assert slurm.follow("7", said.append) == "COMPLETED"
    assert len(asked) == 4 and said[-1] == "job 7: completed on n1"


def test_a_controller_that_stays_silent_is_given_up_and_the_job_is_named(squeue, monkeypatch):
    squeue("RUNNING|n1|None", WrongUse(UNREACHABLE))
    monkeypatch.setattr(slurm, "SILENT_SECONDS", 0.02)
    with pytest.raises(WrongUse, match=r"Unable to contact.*job 7 was left alone"):
        slurm.follow("7", lambda text: None)


def test_a_job_that_slurm_has_forgotten_keeps_its_last_state(squeue):
    squeue("RUNNING|n1|None", WrongUse("slurm_load_jobs error: Invalid job id specified"))
    assert slurm.follow("7", lambda text: None) == "RUNNING"
