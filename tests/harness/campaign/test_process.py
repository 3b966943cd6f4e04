"""What the row of a process says beyond its worker's own words."""

import pytest

from harness.campaign.events import Outcome
from harness.campaign.process import Process, further_steps
from harness.plan.planner import Trial
from harness.workers.worker import Failed
from tests.harness.campaigns import run

GREETED = {"device_name": "NVIDIA H200"}


def failing(trial, outcome):
    """A process without a session, with this outcome so far."""
    process = Process(None, trial, 0, 0)
    process.outcome = outcome
    return process


@pytest.mark.parametrize(("kind", "devices", "fault", "greeted", "windows", "told"), [
    ("cuda", 2, "timed_out", GREETED, [], True), ("cuda", 1, "timed_out", GREETED, [], False),
    ("cpu", 2, "timed_out", GREETED, [], False), ("cuda", 2, "crashed", GREETED, [], False),
    ("cuda", 2, "timed_out", GREETED, [{"window": -1}], False),  # they have trained together
    ("cuda", 2, "timed_out", {}, [], False),  # its interpreter is slow to start
    ("cuda", 2, "timed_out", {"device_name": ""}, [], False),  # that of its check was
])
def test_gpus_that_hang_before_their_first_window_are_told_what_helps_where_they_do_not_reach_one_another(
        kind, devices, fault, greeted, windows, told):
    trial = Trial("tensorflow", "2.21.0", "fcn5", 64, devices, kind, 1, "fp32", "stock", "device", 0.05, 1, 1, False, 3,
                  strategy="nccl")
    outcome = Outcome({"trial": trial.trial, "process": 0, "status": "ok", "reason": "", **greeted}, windows=windows)
    with failing(trial, outcome)._noting_failures():
        raise Failed(fault, "no answer to 'train' within 900 s")
    said = "; where GPUs do not reach one another directly (IOMMU, ACS), NCCL_P2P_DISABLE=1 sends through the host's memory"
    assert outcome.row["status"] == "failed"
    assert outcome.row["reason"] == f"{fault}: no answer to 'train' within 900 s" + (said if told else "")


def test_a_reference_that_hangs_says_nothing_of_the_gpus():
    trial = Trial("tensorflow", "2.21.0", "fcn5", 64, 2, "cuda", 1, "fp32", "stock", "device", 0.05, 1, 1, False, 3,
                  strategy="nccl")
    outcome = Outcome({"trial": trial.trial, "process": 0, "status": "ok", "reason": "", **GREETED})
    silence = "the reference: no answer to 'answer' within 900 s"
    with failing(trial, outcome)._noting_failures():
        raise Failed("timed_out", silence)
    assert (outcome.row["status"], outcome.row["reason"]) == ("failed", f"timed_out: {silence}")


def test_processes_prove_at_other_steps_and_batches_so_a_fault_of_every_second_one_is_refused(tmp_path, stand_in):
    assert [further_steps(number) for number in range(6)] == [0, 1, 3, 4, 6, 7]
    stand_in(good="reference", steps="reference:HeadAloneEvery2", batches="reference:HeadAloneOnBatch2")
    done = run(tmp_path, frameworks=["good", "steps", "batches"], processes=4, window_seconds=1e-6, window_steps=2)
    checks = done.processes.sort_values("process").groupby(done.processes["trial"].str.partition("-")[0])["check"]
    assert checks.agg(list).to_dict() == {
        "good": 4 * ["same"], "steps": ["same", "same", "different", "different"],
        "batches": ["same", "different", "same", "different"]}


@pytest.mark.parametrize(("seconds", "steps"), [(1e-6, 10), (1e-6, 1)])
def test_timed_windows_have_the_fewest_steps_that_the_suite_asks_for(tmp_path, stand_in, seconds, steps):
    stand_in(one="reference")
    done = run(tmp_path, frameworks="one", processes=1, window_seconds=seconds, window_steps=steps)
    timed = done.windows[done.windows["window"] >= 0]
    assert timed["steps"].tolist() == [steps, steps]
    assert done.processes["window_steps"].tolist() == [steps]
