"""Several environments at a time: all at once, in order, and none goes on after an error."""

import subprocess
import threading
import time
from functools import partial

import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.environments import commands, side_by_side, store
from harness.environments.install import BuildFailed
from harness.errors import WrongUse


def test_makers_run_at_the_same_time_and_their_results_are_in_order(monkeypatch):
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=20)

    def make(number):
        both.wait()
        time.sleep(0.1 * (2 - number))
        return number

    assert side_by_side.make_all([partial(make, 0), partial(make, 1)]) == [0, 1]
    assert side_by_side.make_all([]) == []


@pytest.mark.parametrize("error", [WrongUse("no such release"), KeyboardInterrupt()])
def test_an_error_ends_the_programs_of_the_others_and_lets_no_other_start(error, monkeypatch, tmp_path):
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)
    codes, begun = [], threading.Event()

    def slow():
        for _ in range(2):
            codes.append(commands.run_logged(["sh", "-c", "echo begun; exec sleep 100"], tmp_path / "log", lambda line: begun.set()))

    def wrong():
        assert begun.wait(20)
        raise error

    started = time.monotonic()
    with pytest.raises(type(error)):
        side_by_side.make_all([slow, wrong])
    assert codes == [-9, 1] and time.monotonic() - started < 50
    assert commands.run_logged(["true"], tmp_path / "log", print) == 0


def test_an_environment_that_cannot_be_built_costs_no_other_one(monkeypatch):
    def build(framework, release, kind, progress):
        if framework == "mxnet":
            raise BuildFailed("mxnet: no")
        return Built()

    class Built:
        interpreter = "/here/python"

    monkeypatch.setattr(store, "build", build)
    result = CliRunner().invoke(app, ["env", "build", "mxnet", "reference", "--device", "cpu"])
    assert isinstance(result.exception, BuildFailed) and str(result.exception) == "mxnet: no"
    assert "(cpu): /here/python" in result.output


def test_a_lock_is_given_back_while_a_program_that_inherited_it_lives(monkeypatch, tmp_path):
    monkeypatch.setenv("DLBENCH_ENVS", str(tmp_path))
    told = []
    with store._lock("one", told.append), subprocess.Popen(["sleep", "100"], close_fds=False) as other:
        try:
            with store._lock("two", told.append):
                later = subprocess.Popen(["sleep", "100"], close_fds=False)
            with store._lock("two", told.append):
                assert told == [], "it waited for another build's program"
        finally:
            for each in (other, later):
                each.kill()
            later.wait()
