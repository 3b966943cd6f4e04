"""The trace pass: a stand-in runner on a stand-in GPU, through a real worker; what goes wrong costs its own row only."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import networks
from analysis.proof import evidence
from analysis.records import reader
from harness.campaign import campaign, tracing
from harness.campaign.events import Listener
from harness.campaign.session import Session
from harness.data.inputs import Inputs
from harness.environments import recipes
from harness.environments.store import BuildFailed, Environment
from harness.inference.reference import Reference
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.alive import LiveWorkers
from tests.parallel import parallel_of

FAKE_CUPTI = str(Path(__file__).parents[2] / "fake_cupti")
TRIAL = Trial(framework="good", release=np.__version__, network="tiny_fcn", batch=4, devices=1, device_kind="cuda", threads=1,
              precision="fp32", tuning="stock", data="host", learning_rate=0.1, parameters=1, flops_per_step=1, dropout=False,
              processes_planned=1)
ON_TWO = replace(TRIAL, devices=2, ranks=2, batch=2)
COPIED = 4 * 4 * networks.get("tiny_fcn").input_shape[0]  # bytes of a batch of four


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Make a session of one framework whose workers run `module`: `session("processes.traced")`."""

    def make(module, variables=None, **suite):
        runner = SimpleNamespace(runner=f"tests.faults.{module}", engine=f"tests.faults.{module}", parallel=parallel_of(module))
        monkeypatch.setattr(recipes, "load", lambda name, folder=None: runner)
        suite = Suite.model_validate({"networks": "tiny_fcn", **suite})
        variables = {"PYTHONPATH": FAKE_CUPTI} if variables is None else variables
        ready = {f"good=={np.__version__}": Environment("good", np.__version__, "cuda", Path(sys.executable), "key", "3.11", (), variables, "built")}
        live = LiveWorkers()
        return Session(suite, ready, tmp_path / "logs", Inputs(tmp_path, 1), SimpleNamespace(live=live),
                       references=Reference(tmp_path, 1, 2, 60, live))

    return make


def test_a_traced_trial_is_rows_of_kernels_copies_busy_and_idle_time(session):
    rows = pd.DataFrame(tracing.trace(session("processes.traced"), TRIAL).again())
    assert set(rows["trial"]) == {TRIAL.trial}
    assert set(rows["steps"]) == {tracing.STEPS}
    shown = rows[["class", "arithmetic", "transposition", "count_per_step", "bytes_per_step"]].astype(object)
    assert shown.where(shown.notna(), None).values.tolist() == [
        ["matrix product", "fp32", "tn", 1, None], ["copy", None, None, 1, COPIED], ["memset", None, None, 1, 8],
        ["wall", None, None, None, None], ["busy", None, None, None, None], ["idle", None, None, None, None]]
    assert rows["kernel"].str.slice(0, 15).tolist()[:3] == ["sm80_xmma_gemm_", "host_to_device", "memset"]
    span = (500 * (tracing.STEPS - 1) + 410) / tracing.STEPS
    seconds = rows.set_index("class")["seconds_per_step"]
    assert seconds.pop("wall") > 0
    assert seconds.tolist() == pytest.approx([250e-9, 100e-9, 10e-9, 310e-9, (span - 310) * 1e-9])
    assert rows["exposed_seconds_per_step"].tolist()[:3] == pytest.approx([250e-9, 50e-9, 10e-9])  # the kernel hides half the copy


def test_a_trial_in_inference_is_traced_call_by_call(session):
    trial = replace(TRIAL, mode="inference")
    rows = pd.DataFrame(tracing.trace(session("processes.traced:Engine"), trial).again())
    assert rows[["class", "count_per_step", "bytes_per_step"]].fillna(-1).values.tolist()[:3] == [
        ["matrix product", 1, -1], ["copy", 1, COPIED], ["memset", 1, 8]]
    assert tracing.wanted(Suite(), trial)
    [against] = evidence.reasons_against({"precision": "bf16"}, rows)
    assert against.startswith("declared bf16, but 100 % of the product time ran in fp32")


@pytest.mark.parametrize(("module", "reason"), [
    ("reference", "device 'cuda': NumPy runs on the CPU alone"), ("import_fails", "crashed: "),
])
def test_a_worker_that_fails_leaves_its_reason(session, module, reason):
    row, = tracing.trace(session(module), TRIAL).again()
    assert {key: row[key] for key in ("trial", "class")} == {"trial": TRIAL.trial, "class": "no trace"}
    assert reason in row["reason"]


def test_an_environment_without_cupti_is_a_reason(session):
    row, = tracing.trace(session("processes.traced", variables={"PYTHONPATH": str(Path(FAKE_CUPTI) / "missing")}), TRIAL).again()
    assert "cupti" in row["reason"]


def test_of_two_ranks_the_first_is_traced(session):
    rows = pd.DataFrame(tracing.trace(session("processes.ranks:Traced"), ON_TWO).again())
    assert rows["class"].tolist() == ["matrix product", "copy", "memset", "wall", "busy", "idle"]
    assert rows["count_per_step"].tolist()[:3] == [1, 1, 1]


def test_two_ranks_without_cupti_are_a_reason_at_once(session):
    """Rank 1 once ran its steps and waited for rank 0, which had refused, until the limit of a window (seen on two H200s)."""
    made = session("processes.ranks:Traced", variables={"PYTHONPATH": str(Path(FAKE_CUPTI) / "missing")})
    began = time.monotonic()
    row, = tracing.trace(made, ON_TWO).again()
    assert row["reason"].startswith("no trace without the package cupti-python, of the framework's own CUDA: ")
    assert time.monotonic() - began < 60 < made.suite.limits.window


def test_an_environment_that_could_not_be_built_is_a_reason(session):
    made = session("processes.traced")
    row, = tracing.trace(replace(made, environments={f"good=={np.__version__}": BuildFailed("no wheel\nlog")}), TRIAL).again()
    assert row["reason"] == "crashed: its environment could not be built: no wheel"


def test_xlas_own_flags_are_kept_and_its_command_buffers_are_off(session, monkeypatch):
    environment = session("processes.traced").environments[f"good=={np.__version__}"]
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert tracing.visible_copies(environment, TRIAL) == {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    assert tracing.visible_copies(environment, TRIAL) == {"XLA_FLAGS": "--xla_a=1 --xla_gpu_enable_command_buffer="}
    recipe = replace(environment, variables={"XLA_FLAGS": "--xla_b=2"})
    assert tracing.visible_copies(recipe, TRIAL) == {"XLA_FLAGS": "--xla_b=2 --xla_gpu_enable_command_buffer="}


def test_only_cuda_trials_are_traced_and_only_where_the_suite_wants_it():
    assert tracing.wanted(Suite(), TRIAL)
    assert not tracing.wanted(Suite(trace=False), TRIAL)
    assert not tracing.wanted(Suite(), replace(TRIAL, device_kind="cpu"))


def test_a_campaign_traces_each_trial_once_and_a_resumed_one_traces_what_is_missing(tmp_path, stand_in, monkeypatch):
    stand_in(good="reference", bad="processes.wire:Raises")
    suite = Suite.model_validate({"frameworks": ["good", "bad"], "networks": ["tiny_fcn", "tiny_lstm"], "device": "cpu",
                                  "threads": 1, "processes": 2, "windows": 1, "window_seconds": 0.01, "data": "host",
                                  "peaks": False})
    traced = []

    class Trace(tracing.Recording):
        def __init__(self, session, trial):
            super().__init__(session, trial, None, "kernels")

        def get_ready(self):
            return self

        def rows(self):
            traced.append(self.trial.trial)
            return [{"trial": self.trial.trial, "class": "idle", "seconds_per_step": 0.5}]

    monkeypatch.setattr(tracing, "trace", Trace)
    monkeypatch.setattr(tracing, "wanted", lambda suite, trial: suite.trace)

    def run(resume):
        prepared = campaign.prepare(suite, "suite.yaml")
        campaign.run(prepared, tmp_path, Listener(), resume)
        return reader.read(tmp_path)

    done = run(resume=False)
    good = sorted(trial["trial"] for trial in done.trials if trial["framework"] == "good")
    assert sorted(traced) == good == sorted(done.kernels["trial"])  # what failed is not traced

    lines = (tmp_path / "kernels.csv").read_text().splitlines(keepends=True)
    lost = lines[-1].partition(",")[0]
    (tmp_path / "kernels.csv").write_text("".join(lines[:-1]) + lines[-1].replace("idle", "element-wise"))  # cut off by a kill
    traced.clear()
    done = run(resume=True)
    assert traced == [lost]
    assert sorted(done.kernels["trial"]) == good
    assert (tmp_path / "kernels.csv").read_text().count(lost) == 1


def test_a_campaign_on_a_cpu_has_no_kernels(tmp_path, stand_in):
    stand_in(good="reference")
    suite = Suite.model_validate({"frameworks": "good", "networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 1,
                                  "windows": 1, "window_seconds": 0.01, "data": "host", "peaks": False})
    campaign.run(campaign.prepare(suite, "suite.yaml"), tmp_path, Listener())
    assert not (tmp_path / "kernels.csv").exists()
    assert len(reader.read(tmp_path).kernels) == 0
