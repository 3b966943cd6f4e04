"""What a fault costs a campaign: a row with its reason, never the other rows."""

import re

import numpy as np
import pytest

from harness.campaign import session
from harness.environments import store
from harness.proof.verdict import Verdict
from tests.harness.campaigns import run, table

NETWORKS = ["tiny_fcn", "tiny_lstm"]

FAULTS = {
    "processes.wire:Raises": "crashed: RuntimeError: the third step is broken",
    "processes.wire:Segfault": "crashed: the worker ended during 'train' with signal SIGSEGV; log: "
    "about to read address 0",
    "processes.wire:Hang": "timed_out: no answer to 'train' within 3 s; log: ",
    "processes.wire:HangsWhenTimed": "timed_out: no answer to 'run' within 2 s; log: ",
    "processes.memory:First": "out_of_memory: RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB",
    "processes.wire:Orphan": "crashed: the worker ended during 'train' with exit code 3; log: ",
    "processes.wire:Diverges": "diverged: the loss is nan after step 5",
    "processes.wire:Garbage": "protocol: not a line of JSON: 'I am not JSON'",
    "import_fails": "crashed: ImportError: libcublas.so.12: cannot open shared object file",
    "reference:Swapped": "different: layer dense1: output (24,), the network has (16,)",
}


def test_each_fault_is_one_failed_row_and_the_others_go_on(tmp_path, stand_in, workers_in):
    names = {fault.rpartition(":")[2].lower(): fault for fault in FAULTS}
    stand_in(healthy="reference", **names)
    done = run(tmp_path, frameworks=["healthy", *names], processes=1,
               limits={"check": 3, "window": 2})
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()} == {
        "healthy tiny_fcn": ("ok", "yes"),
        **{f"{name} tiny_fcn": ("failed", "no") for name in names}
    }
    reasons = {fault: rows[f"{name} tiny_fcn"]["reason"] for name, fault in names.items()}
    assert {fault: reason[:len(FAULTS[fault])] for fault, reason in reasons.items()} == FAULTS
    assert len(done.processes) == 1 + len(FAULTS)
    assert done.meta["finished"]
    assert workers_in(tmp_path) == []


def test_a_loss_that_leaves_two_peers_ends_its_trial(tmp_path, stand_in):
    stand_in(one="reference", two="reference", drifts="processes.wire:Drifts")
    done = run(tmp_path, frameworks=["one", "two", "drifts"], processes=3)
    rows = done.processes.sort_values("order")
    drifting = rows[rows["trial"].str.startswith("drifts")]["reason"].tolist()
    # Only before its peers had ended could it end well.
    ended = next(number for number, reason in enumerate(drifting) if reason)
    assert re.fullmatch(r"diverged: the loss is \S+ after step \d+, that of 2 other frameworks .*", drifting[ended])
    assert all(reason.startswith(f"diverged: not started, because process {ended} failed: the loss is")
               for reason in drifting[ended + 1:])
    assert set(rows[~rows["trial"].str.startswith("drifts")]["status"]) == {"ok"}


def test_a_proof_leaves_nothing_behind_in_what_is_timed(tmp_path, stand_in, monkeypatch):
    """The timed steps begin at the same weights, momentum and batch as without a proof."""
    stand_in(one="reference")
    asked = {"frameworks": "one", "networks": NETWORKS, "processes": 1}
    proven = run(tmp_path / "proven", **asked)
    monkeypatch.setattr(session.Session, "prove", lambda *arguments: Verdict("same"))
    timed = run(tmp_path / "timed", **asked)
    losses = [
        done.windows[done.windows["last_step"] <= 8].groupby("trial")["loss"].agg(list)
        for done in (proven, timed)
    ]
    assert losses[0].to_dict() == losses[1].to_dict()


def test_a_fault_that_begins_in_the_timed_windows_is_different_after_them(tmp_path, stand_in):
    stand_in(good="reference", stops="training:reference.Stops20")
    done = run(tmp_path, frameworks=["good", "stops"], processes=1)
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()
            } == {"good tiny_fcn": ("ok", "yes"), "stops tiny_fcn": ("ok", "no")}
    found = done.processes.set_index("trial").filter(like="stops", axis="index").iloc[0]
    assert found["check"] == "different"
    assert found["check_reason"].startswith(
        "after the timed windows: dense4.bias moved 0 times as far as it must")
    assert "nothing was trained" in rows["stops tiny_fcn"]["reason"]
    assert found["gradient_error"] == pytest.approx(1) and float(found["proof_frozen_share"]) == 0


def test_the_reference_is_asked_before_anything_is_timed(tmp_path, stand_in):
    stand_in(good="reference", bad="reference:Nesterov", broken="processes.wire:Raises")
    seen = []
    done = run(tmp_path, frameworks=["good", "bad", "broken"], networks=NETWORKS, check_jobs=2,
               watch=seen.append)
    phases = [event.phase for event in seen]
    assert phases[:phases.index("starting")] == ["asking the reference"] * 2
    assert phases.count("asking the reference") == 2
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()} == {
        **{f"good {name}": ("ok", "yes") for name in NETWORKS},
        **{f"bad {name}": ("ok", "no") for name in NETWORKS},
        **{f"broken {name}": ("failed", "no") for name in NETWORKS}
    }
    assert all((tmp_path / log).is_file() for log in done.processes["log"])


def test_what_a_worker_refuses_is_an_unsupported_row(tmp_path, stand_in):
    stand_in(one="reference")
    run(tmp_path, frameworks="one", precision="bf16")
    row = table(tmp_path)["one tiny_fcn"]
    assert (row["status"], row["verified"], row["reason"]) == (
        "unsupported", "no", "precision 'bf16': the reference computes in float64 and judges fp32")


def test_what_the_recipe_refuses_starts_and_builds_nothing(tmp_path, stand_in):
    built = stand_in(one="processes.wire:Raises")
    done = run(tmp_path, frameworks="one", device="cuda")
    row = table(tmp_path)["one tiny_fcn"]
    assert (row["status"], row["reason"]) == ("unsupported", "NumPy computes on the CPU")
    assert (built, len(done.processes), done.meta["environments"]) == ([], 0, {})


def test_a_network_that_is_different_is_timed_and_not_verified(tmp_path, stand_in):
    stand_in(one="reference", nesterov="reference:Nesterov")
    run(tmp_path, frameworks=["one", "nesterov"], processes=1)
    rows = table(tmp_path)
    assert (rows["one tiny_fcn"]["status"], rows["one tiny_fcn"]["verified"]) == ("ok", "yes")
    row = rows["nesterov tiny_fcn"]
    assert (row["status"], row["verified"]) == ("ok", "no")
    assert float(row["step_seconds"]) > 0
    assert row["reason"].startswith(
        "different from the reference: dense4.bias moved 1.9 times as far as it must ")


def test_a_loss_that_strays_from_its_peers_is_a_remark_on_every_row_that_it_touches(
        tmp_path, stand_in):
    stand_in(one="reference", two="reference:Noisy", stray="reference:Stray")
    done = run(tmp_path, frameworks=["one", "two", "stray"], processes=1)
    assert set(done.processes["check"]) == {"same"}
    rows = table(tmp_path)
    assert {row["verified"] for row in rows.values()} == {"yes"}
    said = "losses do not agree with those of"
    release = f"{np.__version__} stock: loss "
    assert f"{said} 2 of 2 peers, such as one {release}" in rows["stray tiny_fcn"]["reason"]
    assert all(f"{said} stray {release}" in rows[f"{name} tiny_fcn"]["reason"]
               for name in ("one", "two"))


def test_an_environment_that_cannot_be_built_costs_its_own_trials_only(
        tmp_path, stand_in, monkeypatch):
    stand_in(good="reference", broken="reference")
    build = store.build

    def fail_for_broken(framework, release, device, progress):
        if framework == "broken":
            raise store.BuildFailed("no wheel for this Python\nwhole log: elsewhere")
        return build(framework, release, device, progress)

    monkeypatch.setattr(store, "build", fail_for_broken)
    run(tmp_path, frameworks=["good", "broken"], processes=1)
    rows = table(tmp_path)
    assert (rows["good tiny_fcn"]["status"], rows["good tiny_fcn"]["verified"]) == ("ok", "yes")
    assert rows["broken tiny_fcn"]["status"] == "failed"
    assert rows["broken tiny_fcn"]["reason"] == (
        "crashed: its environment could not be built: no wheel for this Python")
