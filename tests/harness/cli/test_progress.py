"""What a person reads while a campaign runs: step times in fitting units, one line on the process at work, a line a failure."""

import io

import pytest
from rich.console import Console

from harness.campaign.events import Event, Outcome
from harness.cli.progress import Display, describe, duration
from harness.plan.planner import Machine, Trial, make_trials
from harness.plan.suite import Suite


@pytest.fixture
def trial() -> Trial:
    suite = Suite(frameworks="pytorch", networks="tiny_fcn", batches=4, threads=1)
    return make_trials(suite, {"pytorch": "2.13.0"}, Machine("cpu", 1, 1), lambda name: False)[0]


@pytest.mark.parametrize(("seconds", "text"), [
    (0.0, "0 us"), (12.34e-6, "12.3 us"), (999e-6, "999 us"), (1e-3, "1 ms"), (0.04567, "45.7 ms"), (1.0, "1 s"),
    (89.6, "89.6 s"), (90.0, "2 min"), (600.0, "10 min"), (5399.0, "90 min"), (5400.0, "1.5 h"), (86400.0, "24.0 h"),
])
def test_a_duration_has_the_unit_that_a_person_would_use(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(("event", "text"), [
    ({"phase": "proving"}, "pytorch tiny_fcn b4 fp32 stock #2 proving"),
    ({"phase": "warm-up", "step_seconds": 0.25, "loss": 2.302585},
     "pytorch tiny_fcn b4 fp32 stock #2 warm-up · 250 ms a step · loss 2.303"),
    ({"phase": "timing", "window": 3, "step_seconds": 0.0125, "loss": 0.5},
     "pytorch tiny_fcn b4 fp32 stock #2 timing 3/8 · 12.5 ms a step · loss 0.5"),
    ({"phase": "timing", "window": 3, "step_seconds": 0.0125, "loss": float("nan")},
     "pytorch tiny_fcn b4 fp32 stock #2 timing 3/8 · 12.5 ms a step · loss nan"),
])
def test_an_event_is_one_line(trial: Trial, event: dict, text: str):
    assert describe(Event(trial, 2, **event), windows=8) == text


def shown(trial: Trial, row: dict, processes: int = 2) -> str:
    """What a log, which is no terminal, gets of one finished process."""
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    with Display(console, Suite(), [(trial, process) for process in range(processes)]) as display:
        display.watch(Event(trial, 0, "timing", 1, 0.0125, 0.5))
        windows = [{"window": number, "step_seconds": seconds}
                   for number, seconds in ((-1, 9.0), (0, 0.01), (1, 0.0125), (2, 0.02))]
        outcome = Outcome({"trial": trial.trial, "process": 0, **row}, windows)
        display.done(outcome, number=1, total=processes)
    return console.file.getvalue()


def test_a_log_gets_a_line_a_process(trial: Trial):
    text = shown(trial, {"status": "ok", "reason": ""}, processes=1)
    assert text == "1/1 pytorch-2.13.0-tiny_fcn-b4-cpux1-t1-fp32-stock-host process 0: 12.5 ms a step, none left\n"


def test_asking_the_reference_first_does_not_count_as_the_first_process(trial: Trial, monkeypatch: pytest.MonkeyPatch):
    now = iter([0.0, 600.0, 601.0])  # begun, the first process started, and done
    monkeypatch.setattr("harness.cli.progress.time.monotonic", lambda: next(now, 601.0))
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    with Display(console, Suite(), [(trial, 0), (trial, 1)]) as display:
        display.watch(Event(trial, 0, "asking the reference"))
        display.watch(Event(trial, 0, "starting"))
        windows = [{"window": 0, "step_seconds": 0.0125}]
        display.done(Outcome({"trial": trial.trial, "process": 0, "status": "ok"}, windows), 1, total=2)
    assert console.file.getvalue().endswith("about 1 s left\n")


@pytest.mark.parametrize(("jobs", "left"), [(1, "2 min"), (4, "12 s")])
def test_time_in_which_others_got_ready_too_is_not_taken_for_the_first_process_alone(
        trial: Trial, monkeypatch: pytest.MonkeyPatch, jobs: int, left: str):
    now = iter([0.0, 0.0, 100.0, 106.0])  # begun, the first process started, and two done
    monkeypatch.setattr("harness.cli.progress.time.monotonic", lambda: next(now, 106.0))
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    with Display(console, Suite(prepare_jobs=jobs), [(trial, process) for process in range(4)]) as display:
        display.watch(Event(trial, 0, "starting"))
        for process in range(2):
            windows = [{"window": 0, "step_seconds": 0.0125}]
            display.done(Outcome({"trial": trial.trial, "process": process, "status": "ok"}, windows), process + 1, 4)
    assert console.file.getvalue().endswith(f"about {left} left\n")


def test_a_failure_is_shown_with_its_reason_word_for_word(trial: Trial):
    reason = "crashed: KeyError: no [weight] in [/tmp]"
    text = shown(trial, {"status": "failed", "reason": reason})
    assert text == f"pytorch-2.13.0-tiny_fcn-b4-cpux1-t1-fp32-stock-host process 0: failed: {reason}\n"
