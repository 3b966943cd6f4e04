"""Whatever a worker answers or leaves in its file becomes one row, and the other trials go on."""

import gc
from functools import partial

from analysis.audit import audit
from harness.workers import launch
from harness.workers.worker import Timeouts, Worker
from tests.faults.processes import hostile
from tests.harness.campaigns import run, table

# What only a pipe shows, and a sample of the rest, through real processes.
REAL = ("line_long", "line_nested", "line_of_bytes", "run_in_the_future", "file_fifo",
        "hello_release_surrogate")


def assert_rows(folder, names):
    rows = table(folder)
    assert [(row["status"], row["verified"]) for row in (rows["honest tiny_fcn"], rows["last tiny_fcn"])] == 2 * [("ok", "yes")]
    for name in names:
        case, row = hostile.CASES[name], rows[f"{name} tiny_fcn"]
        assert (row["status"], row["verified"]) == ("failed", "no"), name
        assert row["reason"].startswith(f"{case.kind}: ") and case.words in row["reason"], (name, row["reason"])
        assert len(row["reason"]) < 1100 and row["reason"].isprintable(), name
    assert len(rows) == len(names) + 2
    assert audit.audit(folder) == []


def ran(folder, stand_in, names):
    stand_in(honest="reference", last="reference", **{name: f"processes.hostile:{name}" for name in names})
    done = run(folder, frameworks=["honest", *names, "last"], processes=1, windows=1, window_seconds=0.001,
               telemetry=False)
    assert done.meta["finished"]
    return done


def test_there_are_enough_cases():
    assert len(hostile.CASES) >= 71


def test_each_dishonest_answer_is_one_failed_row(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(launch, "Worker", hostile.Scripted)
    monkeypatch.setattr(gc, "collect", int)  # at each build; here it searches pytest's objects too
    ran(tmp_path, stand_in, hostile.CASES)
    assert_rows(tmp_path, hostile.CASES)


def test_real_processes_may_lie_as_well(tmp_path, stand_in, monkeypatch, workers_in):
    monkeypatch.setattr(launch, "Worker", partial(Worker, timeouts=Timeouts(silence=10)))
    ran(tmp_path, stand_in, REAL)
    assert_rows(tmp_path, REAL)
    assert workers_in(tmp_path) == []
