"""The computing part of scripts/overhead.py, from made-up timings and a made-up loop."""

import csv
import math
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.campaign.events import Listener
from harness.campaign.session import Session
from harness.environments.store import Environment
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.worker import Failed
from scripts import overhead

CASE = {"framework": "pytorch", "release": "2.13.0", "network": "fcn5", "batch": 64, "device": "cpu", "threads": 2}


def windows(side, process, times):
    same = {**CASE, "side": side, "process": process, "steps": 8, "driver_share": 0.01}
    return [{**same, "window": number, "step_seconds": seconds} for number, seconds in enumerate(times)]


def test_a_step_that_takes_a_tenth_longer_has_the_ratio_1_1():
    rows = []
    for process in range(3):
        rows += windows("bare", process, [0.010] * 4) + windows("dlbench", process, [0.011] * 4)
    (found,) = overhead.summarise(rows)
    assert found == {**CASE, "bare_seconds": 0.010, "dlbench_seconds": 0.011, "ratio": pytest.approx(1.1),
                     "low": pytest.approx(1.1), "high": pytest.approx(1.1), "processes": 3}


def test_processes_that_differ_widen_the_interval_more_than_their_windows_do():
    rows = []
    for process, seconds in enumerate([0.009, 0.010, 0.012]):
        rows += windows("bare", process, [0.010] * 4) + windows("dlbench", process, [seconds] * 4)
    (found,) = overhead.summarise(rows)
    assert found["ratio"] == pytest.approx(1.0)
    assert found["low"] < 0.9 and found["high"] > 1.2


def test_two_processes_have_a_ratio_without_an_interval():
    rows = [row for process in range(2) for row in windows("bare", process, [0.010]) + windows("dlbench", process, [0.020])]
    (found,) = overhead.summarise(rows)
    assert found["ratio"] == pytest.approx(2.0) and math.isnan(found["low"])
    assert list(overhead.table([found]).columns[-1].cells) == ["none: 2 of 3 processes"]


def test_a_case_with_one_side_only_is_left_out():
    other = [{**row, "network": "lstm32"} for row in windows("bare", 0, [0.1])]
    rows = windows("bare", 0, [0.1]) + windows("dlbench", 0, [0.1]) + other
    assert [row["network"] for row in overhead.summarise(rows)] == ["fcn5"]


def test_windows_double_until_they_are_long_enough_and_only_the_last_are_kept():
    asked = []

    def timed_run(steps):
        asked.append(steps)
        return 0.1 * steps

    rows = overhead.take_windows(timed_run, windows=2, window_seconds=0.3)
    assert asked == [1, 1, 1, 2, 4, 4, 4]
    assert [(row["window"], row["steps"], row["step_seconds"]) for row in rows] == [(0, 4, 0.1), (1, 4, 0.1)]


def test_the_csv_makes_the_table_again(tmp_path):
    rows = windows("bare", 0, [0.010, 0.011]) + windows("dlbench", 0, [0.012, 0.013])
    overhead.write(rows, tmp_path / "windows.csv")
    with (tmp_path / "windows.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    assert again == [{key: str(row[key]) for key in overhead.COLUMNS} for row in rows]


@pytest.mark.parametrize(("words", "said"), [
    (["--frameworks", "jax"], "--frameworks jax: there is no loop written by hand for it"),
    (["--networks", "fcn8s"], "--networks fcn8s: there is no loop written by hand for it; did you mean fcn5?"),
    (["--processes", "0"], "processes"),
    (["--interpreter", "pytorch=/nowhere/python"], "/nowhere/python: is not a Python interpreter that runs"),
    (["--frameworks", "pytorch==2.13.0", "--interpreter", "pytorch==2.13.0=/nowhere/python"], "/nowhere/python: is not a Python"),
    (["--interpreter", "pytorch"], "--interpreter pytorch: write FRAMEWORK=PATH"),
])
def test_wrong_use_is_said_and_ends_with_2(words, said, capsys):
    assert overhead.main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--batches", "many"], ["--device", "tpu"]])
def test_words_that_cannot_be_read_end_with_2(words):
    with pytest.raises(SystemExit) as ended:
        overhead.main(words)
    assert ended.value.code == 2


def test_a_loop_with_other_parameters_is_refused(monkeypatch, tmp_path):
    (tmp_path / "pytorch_loops.py").write_text("print(14205961, flush=True)\n")
    monkeypatch.setattr(overhead, "LOOPS", tmp_path)
    with pytest.raises(Failed, match="trains 14,205,961 parameters, fcn5 has 14,205,962"), overhead.bare_side(*setting(tmp_path)):
        pass


def test_a_loop_that_crashes_is_named_with_the_end_of_its_log(monkeypatch, tmp_path):
    (tmp_path / "pytorch_loops.py").write_text("raise ValueError('no such layer')\n")
    monkeypatch.setattr(overhead, "LOOPS", tmp_path)
    with pytest.raises(Failed, match="no such layer"), overhead.bare_side(*setting(tmp_path)):
        pass


def test_a_loop_is_asked_for_steps_and_answers_with_seconds(monkeypatch, tmp_path):
    (tmp_path / "pytorch_loops.py").write_text(
        "import sys\nprint(14205962, flush=True)\nfor line in sys.stdin:\n    print(int(line) / 8, flush=True)\n")
    monkeypatch.setattr(overhead, "LOOPS", tmp_path)
    with overhead.bare_side(*setting(tmp_path)) as timed_run:
        assert [timed_run(1), timed_run(4)] == [0.125, 0.5]


def test_a_loop_that_dies_between_two_windows_is_named(monkeypatch, tmp_path):
    (tmp_path / "pytorch_loops.py").write_text("print(14205962, flush=True)\nprint(int(input()), flush=True)\n")
    monkeypatch.setattr(overhead, "LOOPS", tmp_path)
    with overhead.bare_side(*setting(tmp_path)) as timed_run:
        assert timed_run(1) == 1.0
        with pytest.raises(Failed, match="the loop written by hand answered ''"):
            timed_run(1)


def test_both_sides_of_every_process_are_timed_and_a_failure_is_counted(monkeypatch, tmp_path):
    @contextmanager
    def quick(session, trial, log):
        yield lambda steps: 0.25 * steps

    @contextmanager
    def broken(session, trial, log):
        raise Failed("crashed", "the worker ended")
        yield

    trials, session = [planned()], session_of(tmp_path, Suite(processes=3, windows=2, window_seconds=0.3))
    said = session.listener.said
    monkeypatch.setattr(overhead, "SIDES", {"bare": quick, "dlbench": quick})
    rows, failures = overhead.measure(trials, session)
    assert (len(rows), failures) == (12, 0)
    assert sorted({(row["side"], row["process"]) for row in rows}) == [
        ("bare", 0), ("bare", 1), ("bare", 2), ("dlbench", 0), ("dlbench", 1), ("dlbench", 2)]

    monkeypatch.setattr(overhead, "SIDES", {"bare": quick, "dlbench": broken})
    rows, failures = overhead.measure(trials, session)
    assert (len(rows), failures) == (6, 3)
    assert sum("dlbench process" in text and "crashed: the worker ended" in text for text in said) == 3


def planned():
    return Trial(framework="pytorch", release="2.13.0", network="fcn5", batch=64, devices=1, device_kind="cpu", threads=1,
                 precision="fp32", tuning="stock", data="device", learning_rate=0.05, parameters=1, flops_per_step=1,
                 dropout=False, processes_planned=3)


class Notes(Listener):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def session_of(folder, suite, environment=None):
    return Session(suite, {"pytorch==2.13.0": environment}, folder, None, None, Notes())


def setting(folder):
    environment = Environment("pytorch", "2.13.0", "cpu", Path(sys.executable), "key", "3.11", (), {}, "existing")
    return session_of(folder, Suite(), environment), planned(), folder / "loop.log"
