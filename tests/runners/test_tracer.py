"""The tracer against a module that stands for NVIDIA's `cupti` (tests/fake_cupti): what is counted, what is refused."""

import importlib
import sys
import types
from pathlib import Path

import pytest

from runners import tracer
from runners.protocol import Runner, Task, Unsupported
from runners.session import Session

FAKE = Path(__file__).parents[1] / "fake_cupti"


@pytest.fixture
def cupti(monkeypatch):
    """A fresh stand-in, in the place of NVIDIA's package."""
    monkeypatch.syspath_prepend(str(FAKE))
    for name in ("cupti", "cupti.cupti"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("cupti.cupti")


class Training(Runner):
    """A runner whose every step launches what `launches` lists: a kind of activity, start, end and its fields."""

    def __init__(self, cupti, *launches):
        self.cupti = cupti
        self.launches = launches
        self.calls = []

    def step(self):
        self.calls.append("step")
        for kind, start, end, fields in self.launches:
            self.cupti.launch(self.cupti.ActivityKind[kind], start, end, **fields)

    def synchronize(self):
        self.calls.append("synchronize")


def test_activities_are_added_up_by_name_and_kind(cupti):
    kinds = cupti.ActivityMemcpyKind
    runner = Training(
        cupti, ("MEMCPY", 100, 200, {"copy_kind": kinds.HTOD, "bytes": 64}),
        ("MEMCPY", 900, 910, {"copy_kind": kinds.DTOH, "bytes": 4}), ("MEMCPY", 910, 920, {"copy_kind": kinds.DTOD, "bytes": 5}),
        ("MEMCPY2", 920, 930, {"copy_kind": kinds.PTOP, "bytes": 6}),
        ("MEMSET", 930, 940, {"bytes": 8}), ("CONCURRENT_KERNEL", 150, 300, {"name": "one"}),
        ("CONCURRENT_KERNEL", 400, 600, {"name": "one"}), ("CONCURRENT_KERNEL", 500, 550, {"name": "_Z3twov"}))
    traced = tracer.trace(runner, "cuda", steps=2)
    assert traced.pop("wall_seconds") > 0
    assert traced.pop("busy_seconds") == pytest.approx((200 + 200 + 40) * 1e-9)  # 100 to 300, 400 to 600, 900 to 940
    assert traced.pop("span_seconds") == pytest.approx(840e-9)
    seconds = [entry.pop("seconds") for entry in traced["kernels"] + traced["copies"]]
    assert seconds == pytest.approx([700e-9, 100e-9, 200e-9, 20e-9, 20e-9, 20e-9, 20e-9])
    once = [[2, 0, 100], [3, 800, 810], [4, 810, 820], [5, 820, 830], [6, 830, 840], [0, 50, 200], [0, 300, 500], [1, 400, 450]]
    assert traced.pop("timeline") == 2 * once
    assert traced == {
        "steps": 2, "kernels": [{"name": "one", "count": 4}, {"name": "two()", "count": 2}],
        "copies": [{"kind": "host_to_device", "count": 2, "bytes": 128}, {"kind": "device_to_host", "count": 2, "bytes": 8},
                   {"kind": "device_to_device", "count": 2, "bytes": 10},
                   {"kind": "device_to_other_device", "count": 2, "bytes": 12},
                   {"kind": "memset", "count": 2, "bytes": 16}],
    }


def test_of_several_devices_in_one_process_the_first_is_told(cupti):
    both = [("CONCURRENT_KERNEL", 100, 300, {"name": "one", "device_id": device}) for device in (2, 1)]
    others = [("MEMCPY2", 250, 450, {"bytes": 6, "device_id": 2}), ("MEMSET", 10, 20, {"bytes": 8, "device_id": 2})]
    traced = tracer.trace(Training(cupti, *both, *others), "cuda", steps=1)
    assert [(kernel["name"], kernel["count"]) for kernel in traced["kernels"]] == [("one", 1)]
    assert traced["copies"] == []
    assert traced["busy_seconds"] == traced["span_seconds"] == pytest.approx(200e-9)
    assert traced["timeline"] == [[0, 0, 200]]


def test_steps_run_between_two_synchronisations_and_nothing_is_recorded_afterwards(cupti):
    runner = Training(cupti, ("CONCURRENT_KERNEL", 1, 2, {"name": "k"}))
    runner.step()
    traced = tracer.trace(runner, "cuda", steps=3)
    assert runner.calls[1:] == ["synchronize", "step", "step", "step", "synchronize"]
    assert traced["kernels"][0]["count"] == 3
    assert cupti.enabled == set()


def test_a_name_that_says_nothing_has_the_runners_word_behind_it(cupti):
    runner = Training(cupti, *(("CONCURRENT_KERNEL", 1, 2, {"name": name}) for name in ("fusion_7", "loop_add_fusion")))
    assert [kernel["name"] for kernel in tracer.trace(runner, "cuda", 1)["kernels"]] == ["fusion_7", "loop_add_fusion"]
    runner.meanings = lambda kernels: {"fusion_7": "reduce"} if kernels == ["fusion_7", "loop_add_fusion"] else {}
    assert [kernel["name"] for kernel in tracer.trace(runner, "cuda", 1)["kernels"]] == ["fusion_7: reduce", "loop_add_fusion"]


def test_a_kernel_without_times_is_counted_and_fills_no_time(cupti):
    runner = Training(cupti, ("CONCURRENT_KERNEL", 0, 0, {"name": "k"}), ("CONCURRENT_KERNEL", 10, 30, {"name": "k"}))
    traced = tracer.trace(runner, "cuda", steps=1)
    assert traced["kernels"][0]["count"] == 2
    assert (traced["busy_seconds"], traced["span_seconds"]) == pytest.approx((20e-9, 20e-9))
    assert traced["timeline"] == [[0, 0, 20]]


def test_a_step_that_launches_nothing_has_an_empty_trace(cupti):
    traced = tracer.trace(Training(cupti), "cuda", steps=1)
    assert (traced["kernels"], traced["copies"], traced["busy_seconds"], traced["span_seconds"]) == ([], [], 0, 0)
    assert traced["timeline"] == []


def test_two_traces_of_one_process_count_apart(cupti):
    runner = Training(cupti, ("CONCURRENT_KERNEL", 1, 2, {"name": "k"}))
    assert [tracer.trace(runner, "cuda", steps)["kernels"][0]["count"] for steps in (2, 3)] == [2, 3]


def test_a_cpu_has_no_activity_records(cupti):
    with pytest.raises(Unsupported, match="activity records of a CUDA device; this task is on 'cpu'"):
        tracer.trace(Training(cupti), "cpu", 1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(Unsupported, match="no trace without the package cupti-python"):
        tracer.trace(types.SimpleNamespace(), "cuda", 1)


@pytest.mark.parametrize("error", ["RuntimeError", "cuptiError"])
def test_what_cupti_refuses_is_unsupported(cupti, error):
    cupti.refusal = {"RuntimeError": RuntimeError, "cuptiError": cupti.cuptiError}[error]("MULTIPLE_SUBSCRIBERS")
    with pytest.raises(Unsupported, match=f"CUPTI does not trace this process: {error}: MULTIPLE_SUBSCRIBERS"):
        tracer.trace(Training(cupti), "cuda", 1)


def test_a_trace_with_dropped_records_is_refused(cupti):
    cupti.dropped = 7
    with pytest.raises(RuntimeError, match="CUPTI dropped 7 activity records: the trace is not whole"):
        tracer.trace(Training(cupti), "cuda", 1)


def test_an_error_of_the_step_stays_its_own_and_recording_ends(cupti):
    runner = Training(cupti)
    runner.step = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        tracer.trace(runner, "cuda", 1)
    assert cupti.enabled == set()


def test_the_session_writes_the_trace_into_the_file_that_the_command_names(cupti, tmp_path):
    session = Session(None)
    session.runner = Training(cupti, ("CONCURRENT_KERNEL", 1, 2, {"name": "k"}))
    session.task = Task(None, 4, device="cuda")
    assert session.trace(4, str(tmp_path / "trace.json")) == {}
    assert '"name": "k", "count": 4' in (tmp_path / "trace.json").read_text()
