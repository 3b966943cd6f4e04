"""Parts of the step in a made-up worker: a failure costs the part that it befell, and a lost worker is asked nothing more."""

from types import SimpleNamespace

import pytest

from harness.plan.suite import Suite
from harness.workers import step_parts
from harness.workers.worker import Failed, Timeouts, Unsupported

SUITE = Suite(windows=2, window_seconds=1.0)
TRIAL = SimpleNamespace(trial="one", devices=1)


class Worker:
    """Takes a second for each step; raises `error` where `part` is asked for steps as often as `after` says."""

    timeouts = Timeouts(shortage=1.0)

    def __init__(self, part, error, after):
        self.part, self.error, self.left = part, error, after
        self.ended, self.now, self.asked = False, 0.0, []

    def ask(self, command, limit, variant="", steps=0):
        assert not self.ended
        self.asked.append(variant or command)
        if variant == self.part:
            self.left -= 1
            if self.left < 0:
                raise self.error
        self.now += steps
        return {"steps": steps, "start": self.now - steps, "stop": self.now}

    def end(self):
        self.ended = True


def found(worker):
    """What was found: the windows of each part, and the reasons why others have none."""
    rows = step_parts.measure(worker, SUITE, TRIAL, 4)
    windows = [(row["variant"], row["window"]) for row in rows if "window" in row]
    return windows, {row["variant"]: row["reason"] for row in rows if "reason" in row}


@pytest.mark.parametrize(("after", "kept"), [(0, []), (2, []), (4, [("FB", 0)])])  # as it is built, in its pilot, in a window
@pytest.mark.parametrize(("error", "reason"), [
    (Failed("out_of_memory", "20 GiB", answered=True), "out_of_memory: 20 GiB"), (Unsupported("no such part"), "no such part")])
def test_a_part_that_fails_is_a_row_and_the_others_are_timed(error, reason, after, kept):
    worker = Worker("FB", error, after)
    windows, reasons = found(worker)
    assert reasons == {"FB": reason}
    others = [(part, window) for window in (0, 1) for part in ("F", "FBA", "FBAU")]
    assert sorted(windows) == sorted(others + kept) and not worker.ended


@pytest.mark.parametrize("error", [Failed("timed_out", "no answer"), Failed("crashed", "exit code 1")])
def test_a_worker_that_hung_or_died_is_asked_nothing_more_and_ended(error):
    worker = Worker("FB", error, 0)
    lost = "the worker was lost with part FB"
    assert found(worker) == ([], {"FB": str(error), "F": lost, "FBA": lost, "FBAU": lost})
    assert worker.ended and worker.asked[-1] == "FB"


def test_windows_that_were_timed_before_a_worker_was_lost_are_kept():
    windows, reasons = found(Worker("FBAU", Failed("timed_out", "no answer"), 4))
    assert windows == [*((part, 0) for part in ("F", "FB", "FBA", "FBAU")), *((part, 1) for part in ("F", "FB", "FBA"))]
    assert reasons == {"FBAU": "timed_out: no answer"}
