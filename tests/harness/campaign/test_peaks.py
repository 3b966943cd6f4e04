"""The machine's peak: measured by every framework that can, by NumPy where none can, kept in the campaign and measured again."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.records import reader
from analysis.trials import summary
from harness.campaign import campaign, peaks
from harness.campaign.events import Listener
from harness.campaign.session import Session
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Machine, make_trials
from harness.plan.suite import Suite
from harness.workers.worker import Failed, Worker
from tests.slow import slow_but

SMALL = {"networks": "tiny_fcn", "batches": 4, "device": "cpu", "threads": 1, "processes": 1, "windows": 1, "window_seconds": 0.001,
         "data": "host"}


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (64, 128)})
    monkeypatch.setattr(peaks, "STREAM_ELEMENTS", {"cpu": 1000})
    monkeypatch.setattr(peaks, "WINDOW_SECONDS", 0.001)


def planned(**suite):
    suite = Suite.model_validate({**SMALL, **suite})
    return make_trials(suite, dict.fromkeys(suite.frameworks, np.__version__), Machine("cpu", 2, 0), lambda name: False)


class Notes(Listener):
    def __init__(self, told):
        self.note = told.append


def session_of(folder, ready, told=None):
    return Session(Suite(), ready, folder, None, None, Notes([] if told is None else told))


def opened(folder, *names, told=None):
    here = Environment("", np.__version__, "cpu", Path(sys.executable), "", "3.11", (), {}, "built")
    ready = {f"{name}=={np.__version__}": replace(here, framework=name) for name in names}
    return session_of(folder, ready, told)


def test_every_framework_thread_count_and_precision_is_tried_once(tmp_path, stand_in):
    stand_in(one="reference", two="reference:BreaksProduct")
    told = []
    found = peaks.measure(planned(frameworks=["one", "two"], threads=[1, 2], networks=["tiny_fcn", "tiny_lstm"],
                                  precisions=["fp32", "bf16"]), opened(tmp_path, "one", "two", told=told))
    assert [(peak["framework"], peak["threads"], peak["precision"], bool(peak["flops"])) for peak in found] == [
        ("one", 1, "fp32", True), ("two", 1, "fp32", False), ("one", 2, "fp32", True), ("two", 2, "fp32", False),
        ("one", 1, "bf16", False), ("two", 1, "bf16", False), ("one", 2, "bf16", False), ("two", 2, "bf16", False)]
    assert found[0] == {"device_kind": "cpu", "threads": 1, "precision": "fp32", "framework": "one", "flops": found[0]["flops"],
                        "size": found[0]["size"], "when": "before", "reason": "",
                        "bytes_per_second": found[0]["bytes_per_second"]}
    assert 1e7 < found[0]["bytes_per_second"] < 1e13
    assert found[0]["size"] in (64, 128) and 1e7 < found[0]["flops"] < 1e14
    assert found[1]["reason"] == "crashed: RuntimeError: no room for 64 x 64"
    assert found[4]["reason"] == "precision 'bf16': the reference computes in float64 and judges fp32"
    assert len(told) == len(found) and told[1] == "matrix-product peak before the trials: two, fp32, cpu, 1 threads: none: " + found[1]["reason"]


def test_on_a_gpu_the_first_framework_that_can_stands_for_all(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference", two="reference", three="reference")
    asked = []

    def measured(trial, shop, when, module=""):
        asked.append((trial.framework, trial.precision))
        return {"device_kind": "cuda", "threads": 1, "precision": trial.precision, "framework": trial.framework,
                "flops": None if trial.framework == "one" else 1e12, "size": 64, "when": when, "reason": ""}

    monkeypatch.setattr(peaks, "_measure", measured)
    trials = [replace(trial, device_kind="cuda") for trial in planned(frameworks=["one", "two", "three"])]
    peaks.measure(trials, opened(tmp_path, "one", "two", "three"))
    assert asked == [("one", "fp32"), ("two", "fp32")]


def test_numpy_stands_in_where_no_framework_offers_a_product(tmp_path, stand_in):
    stand_in(one="reference:NoProduct", two="reference:NoProduct")
    trials, shop = planned(frameworks=["one", "two"]), opened(tmp_path, "one", "two")
    found = peaks.measure(trials, shop)
    assert [(peak["framework"], bool(peak["flops"])) for peak in found] == [("one", False), ("two", False), ("numpy", True)]
    again = peaks.measure_again(trials, found, shop)
    assert [(peak["framework"], peak["when"], bool(peak["flops"])) for peak in again] == [("numpy", "after", True)]


def test_an_environment_that_could_not_be_built_measures_nothing(tmp_path, stand_in):
    stand_in(one="reference")
    broken = session_of(tmp_path, {f"one=={np.__version__}": BuildFailed("no wheel")})
    assert peaks.measure(planned(frameworks=["one"]), broken) == []


class Told:
    """A worker whose products take the seconds of a list, one for each question."""

    def __init__(self, *seconds):
        self.seconds = list(seconds)
        self.asked = []

    def ask(self, command, limit, **arguments):
        self.asked.append((arguments["size"], arguments["steps"], arguments["windows"]))
        seconds = self.seconds.pop(0)
        return {"windows": [(0.0, 2 * seconds), (0.0, seconds)]}  # the best window counts


def test_windows_are_long_enough_and_the_best_one_of_the_best_size_counts(monkeypatch):
    monkeypatch.setattr(peaks, "WINDOW_SECONDS", 0.2)
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (100, 200, 400)})
    trial = planned(frameworks=["reference"])[0]
    worker = Told(0.01, 0.1, 0.05, 0.125, 0.4, 0.5)
    best, size = peaks._reach(worker, trial)
    assert worker.asked == [(100, 1, 2), (100, 20, 5), (200, 1, 2), (200, 4, 5), (400, 1, 2), (400, 1, 5)]
    assert (best, size) == (pytest.approx(4 * 2 * 200**3 / 0.125), 200)


def test_bandwidth_counts_what_is_read_and_what_is_written(monkeypatch):
    monkeypatch.setattr(peaks, "WINDOW_SECONDS", 0.2)
    asked = []

    def ask(command, limit, **arguments):
        asked.append((command, arguments["elements"], arguments["steps"], arguments["windows"]))
        return {"windows": [(0.0, 0.3), (0.0, 0.05)]}

    worker = SimpleNamespace(ask=ask)
    assert peaks._stream(worker, planned(frameworks=["reference"])[0]) == pytest.approx(4 * 2 * 4 * 1000 / 0.05)
    assert asked == [("bandwidth", 1000, 1, 2), ("bandwidth", 1000, 4, 5)]


def test_a_framework_without_such_an_operation_has_no_bandwidth(tmp_path, stand_in):
    stand_in(one="reference:NoStream")
    found, = peaks.measure(planned(frameworks=["one"]), opened(tmp_path, "one"))
    assert found["flops"] and found["bytes_per_second"] is None and found["reason"] == ""


def test_a_size_whose_product_would_take_too_long_is_left_out():
    trial, worker = planned(frameworks=["reference"])[0], Told(0.1, 0.1)
    peaks._reach(worker, trial)  # 128 cubed is eight times the work of 64 cubed
    assert [size for size, _, _ in worker.asked] == [64, 64]


def test_a_peak_that_fell_is_a_concern_and_one_that_held_is_none():
    def pair(after, **changes):
        before = {"device_kind": "cuda", "threads": 1, "precision": "tf32", "framework": "one", "flops": 4e14, "when": "before"}
        return [before, {**before, "flops": after, "when": "after", **changes}]

    assert peaks.concerns(pair(3e14)) == [
        "the tf32 peak fell from 400 TFLOP/s to 300 TFLOP/s during the campaign: the machine slowed down, or others computed on it"]
    assert peaks.concerns(pair(3.7e14)) == peaks.concerns(pair(5e14)) == peaks.concerns(pair(None)) == []
    assert peaks.concerns(pair(3e14, framework="two")) == []


def run(folder, resume=False, **suite):
    prepared = campaign.prepare(Suite.model_validate({**SMALL, "frameworks": "one", **suite}), "suite.yaml")
    campaign.run(prepared, folder, Listener(), resume)
    return json.loads((folder / "campaign.json").read_text())


def test_a_campaign_keeps_its_peaks_and_a_resumed_one_keeps_the_recorded_ones(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    meta = run(tmp_path)
    assert [(peak["framework"], peak["when"]) for peak in meta["peaks"]] == [("one", "before"), ("one", "after")]
    assert "mfu" in (tmp_path / "trials.csv").read_text() and "share of the peak (%)" in _times(tmp_path)
    monkeypatch.setattr(peaks, "measure", lambda *arguments: pytest.fail("measured again"))
    assert run(tmp_path, resume=True)["peaks"] == meta["peaks"]


def test_rows_are_derived_with_the_peaks_after_the_last_process(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    again = peaks.measure_again
    monkeypatch.setattr(peaks, "measure_again", lambda *arguments: [
        {**peak, "flops": 1e18} for peak in again(*arguments)])
    run(tmp_path)
    recorded = reader.read(tmp_path)
    derived = summary.as_csv(recorded, summary.summarise(recorded))
    assert (tmp_path / "trials.csv").read_text() == derived


def test_a_suite_can_leave_the_peaks_out(tmp_path, stand_in):
    stand_in(one="reference")
    assert run(tmp_path, peaks=False)["peaks"] == []
    assert "share of the peak" not in _times(tmp_path)


def _times(folder):
    from analysis.report import report

    report.write([folder], folder)
    return (folder / "tables" / "times.csv").read_text()


@pytest.mark.parametrize("framework", slow_but(["reference", "pytorch"], ["reference", "pytorch", "tensorflow", "jax"]))
def test_a_runner_multiplies_under_the_protocols_clock(framework, worker_for):
    task = {"device": "cpu", "threads": 1, "precision": "fp32"}
    with worker_for(framework, "", task) as worker:
        answer = worker.ask("peak", limit=300, size=128, steps=3, windows=2, **task)
        moved = worker.ask("bandwidth", limit=300, elements=1000, steps=3, windows=2, **task)
    for (first, second), (third, fourth) in (answer["windows"], moved["windows"]):
        assert first < second <= third < fourth


def test_a_product_that_fails_is_a_typed_failure(tmp_path):
    with (Worker(sys.executable, "tests.faults.reference:BreaksProduct", tmp_path / "log") as worker,
          pytest.raises(Failed, match="no room for 64 x 64")):
        worker.ask("peak", limit=60, size=64, steps=1, windows=1, device="cpu", threads=1, precision="fp32")
