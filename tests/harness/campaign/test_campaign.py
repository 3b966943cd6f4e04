"""Campaigns of tiny networks through real workers: what they record, what a fault costs, and what survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

from analysis.records import reader
from analysis.trials import summary as trials
from harness.campaign import campaign, session
from harness.campaign.events import Event
from harness.environments import store
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.machine import preflight
from harness.machine.hardware import Concern
from harness.plan.planner import Machine, execution_order, make_trials
from harness.plan.suite import Suite
from harness.proof.verdict import Verdict
from harness.telemetry.sampler import PERIODS
from harness.workers.launch import variables
from tests.harness.campaigns import SMALL, run, table

ROOT = Path(__file__).parents[3]
NETWORKS = ["tiny_fcn", "tiny_lstm"]
DRIVER = [sys.executable, "-c", "from harness.cli.main import main; main()"]


def test_a_campaign_records_every_process_window_and_trial(tmp_path, stand_in):
    stand_in(one="reference", two="reference:Noisy")
    seen = []
    done = run(tmp_path, frameworks=["one", "two"], networks=["tiny_fcn", "tiny_dropout"], watch=seen.append)

    processes = done.processes
    suite = Suite.model_validate({**SMALL, **done.meta["suite"]})
    planned = make_trials(suite, dict.fromkeys(["one", "two"], np.__version__), Machine("cpu", 1, 1), lambda name: False)
    order = [(trial.trial, process) for trial, process in execution_order(planned, 2, suite.seed)]
    assert list(zip(processes["trial"], processes["process"], strict=True)) == order
    assert processes["order"].tolist() == list(range(8))
    assert set(processes["status"]) == {"ok"}
    assert set(processes["reason"]) == {""}
    assert set(processes["check"]) == {"same"} and set(processes["check_reason"]) == {""}
    proof = processes.filter(like="proof_").astype(float)
    assert (proof["proof_seconds"] > 0).all() and (proof["proof_rate_error"] <= 0.01).all()
    dropout = processes["trial"].str.contains("tiny_dropout")
    assert (proof["proof_frozen_share"][~dropout] == 0).all()
    assert (proof["proof_gradient_error"][~dropout] < 1e-3).all()
    assert (proof["proof_gradient_error"][dropout] > 1e-3).all()
    assert all((tmp_path / log).is_file() for log in processes["log"])
    phases = [event.phase for event in seen if event.trial.trial.startswith("one")
              and not event.process and not event.trial.dropout]
    assert phases[:4] == ["asking the reference", "starting", "building", "proving"]
    assert phases[-2:] == ["timing", "proving"]
    assert Counter((event.trial.trial, event.process) for event in seen if event.phase == "starting") == Counter(order)

    assert set(zip(done.windows["trial"], done.windows["process"], strict=True)) == set(order)
    for row in processes.itertuples():
        windows = done.windows[(done.windows["trial"] == row.trial) & (done.windows["process"] == row.process)]
        length = int(row.window_steps)
        doublings = [2**power for power in range(1, length.bit_length())]
        assert windows["steps"].tolist() == [1] * 8 + doublings + [length] * 2
        assert windows["window"].tolist() == list(range(-8 - len(doublings), 2))
        assert windows["last_step"].tolist() == windows["steps"].cumsum().tolist()
        assert (windows["stop"] > windows["start"]).all() and (windows["start"].diff().iloc[1:] > 0).all()
        assert np.allclose(windows["seconds"], windows["stop"] - windows["start"])
        assert np.allclose(windows["step_seconds"] * windows["steps"], windows["seconds"])
        assert windows["seconds"].iloc[-3] >= 0.01 and np.isfinite(windows["loss"]).all()

    rows = table(tmp_path)
    assert sorted(rows) == ["one tiny_dropout", "one tiny_fcn", "two tiny_dropout", "two tiny_fcn"]
    assert {(row["status"], row["verified"], row["reason"].partition(";")[0], row["processes"], row["windows"]) for row in
            rows.values()} == {("ok", "yes", "no interval: 2 of at least 3 processes", "2", "4")}
    assert tuple(rows["one tiny_fcn"]) == trials.COLUMNS
    assert not list(tmp_path.glob("*.new"))


def test_the_first_page_says_what_was_planned_where_and_with_what(tmp_path, stand_in):
    built = stand_in(one="reference", two="reference")
    done = run(tmp_path / "first", frameworks=["one", "two"], processes=1)
    meta = json.loads((tmp_path / "first" / "campaign.json").read_text())
    assert meta == done.meta
    assert (meta["schema"], meta["name"], meta["suite_file"], meta["seed"]) == (reader.SCHEMA, "first", "suite.yaml", 1)
    assert meta["finished"] >= meta["started"]
    assert Suite.model_validate(meta["suite"]) == Suite.model_validate({**SMALL, "frameworks": ["one", "two"], "processes": 1})
    assert sorted(meta["environments"]) == [f"one=={np.__version__}", f"two=={np.__version__}"]
    assert built == ["one", "two"]
    assert [trial["status"] for trial in meta["trials"]] == ["planned", "planned"]


def test_every_process_leaves_counters_unless_the_suite_wants_none(tmp_path, stand_in):
    stand_in(one="reference")
    done = run(tmp_path / "with", frameworks="one")
    hosts = done.counters[(done.counters["device"] == "host") & (done.counters["kind"] == "slow")]
    assert hosts.groupby("process").size().ge(2).tolist() == [True, True]
    assert (hosts["cpu_seconds"] > 0).all() and (hosts["memory_used_bytes"] > 0).all()
    assert done.meta["telemetry"]["sources"][0]["device"] == "host"
    without = run(tmp_path / "without", frameworks="one", telemetry=False)
    assert (len(without.processes), len(without.counters)) == (2, 0)
    assert without.meta["telemetry"] == {"period_seconds": PERIODS, "sources": [], "not_measured": [
        "traffic, energy and clocks: the suite says telemetry: false"]}


def test_a_dirty_machine_is_refused_before_anything_starts_or_marks_every_row(tmp_path, stand_in, monkeypatch):
    built = stand_in(one="reference")
    monkeypatch.setattr(preflight, "APART_SECONDS", 0)
    monkeypatch.setattr(preflight, "dirt", lambda described, gpus: [Concern("GPU 0: other processes use it: 7 miner", "end them")])
    with pytest.raises(WrongUse, match=r"7 miner: end them; or go on with --allow-dirty"):
        run(tmp_path / "refused", frameworks="one")
    assert built == [] and not (tmp_path / "refused").exists()
    run(tmp_path / "dirty", frameworks="one", allow_dirty=True)
    monkeypatch.setattr(preflight, "dirt", lambda described, gpus: [])
    done = run(tmp_path / "dirty", resume=True, frameworks="one")
    assert done.meta["dirty"] == ["GPU 0: other processes use it: 7 miner"]
    assert table(tmp_path / "dirty")["one tiny_fcn"]["reason"].endswith("measured on a dirty machine: " + done.meta["dirty"][0])


def test_the_first_page_says_what_a_real_set_was_read_from(tmp_path, stand_in):
    stand_in(one="reference")
    suite = Suite.model_validate({"frameworks": "one", "networks": "fcn5", "batches": 4, "device": "cpu", "data": ["real", "host"]})
    first = campaign.first_page(campaign.prepare(suite, "suite.yaml"), tmp_path, {})
    assert list(first["data_sets"]) == ["mnist"]
    assert "digits" in first["data_sets"]["mnist"] or "images" in first["data_sets"]["mnist"]


def test_a_lock_does_not_say_where_the_environment_lay(tmp_path):
    made = Environment("one", "1.0", "cpu", tmp_path / "envs/one/bin/python", "key", "3.11", (),
                       {"LD_LIBRARY_PATH": f"{tmp_path}/envs/one/lib:/lib", "QUIET": "1"}, "built")
    lock = campaign._lock(made)
    assert lock["variables"] == {"LD_LIBRARY_PATH": "{folder}/lib:/lib", "QUIET": "1"}
    assert str(tmp_path) not in json.dumps(lock)


FAULTS = {
    "wire:Raises": "crashed: RuntimeError: the third step is broken",
    "wire:Segfault": "crashed: the worker ended during 'train' with signal SIGSEGV; log: about to read address 0",
    "wire:Hang": "timed_out: no answer to 'train' within 3 s; log: ",
    "wire:HangsWhenTimed": "timed_out: no answer to 'run' within 2 s; log: ",
    "memory:First": "out_of_memory: RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB",
    "wire:Orphan": "crashed: the worker ended during 'train' with exit code 3; log: ",
    "wire:Diverges": "diverged: the loss is nan after step 5",
    "wire:Garbage": "protocol: not a line of JSON: 'I am not JSON'",
    "import_fails": "crashed: ImportError: libcublas.so.12: cannot open shared object file",
    "reference:Swapped": "different: layer dense1: output (24,), the network has (16,)",
}


def test_each_fault_is_one_failed_row_and_the_others_go_on(tmp_path, stand_in, workers_in):
    names = {fault.rpartition(":")[2].lower(): fault for fault in FAULTS}
    stand_in(healthy="reference", **names)
    done = run(tmp_path, frameworks=["healthy", *names], processes=1, limits={"check": 3, "window": 2})
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()} == {
        "healthy tiny_fcn": ("ok", "yes"), **{f"{name} tiny_fcn": ("failed", "no") for name in names}}
    reasons = {fault: rows[f"{name} tiny_fcn"]["reason"] for name, fault in names.items()}
    assert {fault: reason[:len(FAULTS[fault])] for fault, reason in reasons.items()} == FAULTS
    assert len(done.processes) == 1 + len(FAULTS)
    assert done.meta["finished"]
    assert workers_in(tmp_path) == []


def test_a_proof_leaves_nothing_behind_in_what_is_timed(tmp_path, stand_in, monkeypatch):
    """The timed steps begin at the same weights, momentum and batch as without a proof."""
    stand_in(one="reference")
    asked = {"frameworks": "one", "networks": NETWORKS, "processes": 1}
    proven = run(tmp_path / "proven", **asked)
    monkeypatch.setattr(session.Session, "prove", lambda *arguments: Verdict("same"))
    timed = run(tmp_path / "timed", **asked)
    losses = [done.windows[done.windows["last_step"] <= 8].groupby("trial")["loss"].agg(list)
              for done in (proven, timed)]
    assert losses[0].to_dict() == losses[1].to_dict()


def test_a_fault_that_begins_in_the_timed_windows_is_different_after_them(tmp_path, stand_in):
    stand_in(good="reference", stops="training:reference.Stops20")
    done = run(tmp_path, frameworks=["good", "stops"], processes=1)
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()} == {
        "good tiny_fcn": ("ok", "yes"), "stops tiny_fcn": ("ok", "no")}
    found = done.processes.set_index("trial").filter(like="stops", axis="index").iloc[0]
    assert found["check"] == "different"
    assert found["check_reason"].startswith(
        "after the timed windows: dense4.bias moved 0 times as far as it must")
    assert "nothing was trained" in rows["stops tiny_fcn"]["reason"]
    assert found["gradient_error"] == pytest.approx(1) and float(found["proof_frozen_share"]) == 0


def test_the_reference_is_asked_before_anything_is_timed(tmp_path, stand_in):
    stand_in(good="reference", bad="reference:Nesterov", broken="wire:Raises")
    seen = []
    done = run(tmp_path, frameworks=["good", "bad", "broken"], networks=NETWORKS, check_jobs=2, watch=seen.append)
    phases = [event.phase for event in seen]
    assert phases[: phases.index("starting")] == ["asking the reference"] * 2
    assert phases.count("asking the reference") == 2
    rows = table(tmp_path)
    assert {name: (row["status"], row["verified"]) for name, row in rows.items()} == {
        **{f"good {name}": ("ok", "yes") for name in NETWORKS}, **{f"bad {name}": ("ok", "no") for name in NETWORKS},
        **{f"broken {name}": ("failed", "no") for name in NETWORKS}}
    assert all((tmp_path / log).is_file() for log in done.processes["log"])


def test_what_a_worker_refuses_is_an_unsupported_row(tmp_path, stand_in):
    stand_in(one="reference")
    run(tmp_path, frameworks="one", precision="bf16")
    row = table(tmp_path)["one tiny_fcn"]
    assert (row["status"], row["verified"], row["reason"]) == (
        "unsupported", "no", "precision 'bf16': the reference computes in float64 and judges fp32")


def test_what_the_recipe_refuses_starts_and_builds_nothing(tmp_path, stand_in):
    built = stand_in(one="wire:Raises")
    done = run(tmp_path, frameworks="one", device="cuda")
    assert (table(tmp_path)["one tiny_fcn"]["status"], table(tmp_path)["one tiny_fcn"]["reason"]) == (
        "unsupported", "NumPy computes on the CPU")
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


def test_a_loss_that_strays_from_its_peers_is_a_remark_on_every_row_that_it_touches(tmp_path, stand_in):
    stand_in(one="reference", two="reference:Noisy", stray="reference:Stray")
    done = run(tmp_path, frameworks=["one", "two", "stray"], processes=1)
    assert set(done.processes["check"]) == {"same"}
    rows = table(tmp_path)
    assert {row["verified"] for row in rows.values()} == {"yes"}
    said = "losses do not agree with those of"
    release = f"{np.__version__} stock: loss "
    assert f"{said} 2 of 2 peers, such as one {release}" in rows["stray tiny_fcn"]["reason"]
    assert all(f"{said} stray {release}" in rows[f"{name} tiny_fcn"]["reason"] for name in ("one", "two"))


def test_an_interrupt_leaves_readable_records_and_no_worker(tmp_path, stand_in, workers_in):
    stand_in(one="reference")
    seen = Counter()

    def interrupt(event: Event) -> None:
        seen[event.phase] += 1
        if event.phase == "timing" and seen["starting"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", networks=NETWORKS, watch=interrupt)
    assert workers_in(tmp_path) == []
    stopped = reader.read(tmp_path)
    assert (len(stopped.processes), stopped.meta["finished"]) == (1, None)
    assert sorted(row["status"] for row in table(tmp_path).values()) == ["failed", "ok"]

    finished = run(tmp_path, resume=True, frameworks="one", networks=NETWORKS)
    assert len(finished.processes) == 4
    pd.testing.assert_frame_equal(finished.processes.iloc[:1], stopped.processes, check_exact=True)


def test_an_interrupt_in_the_first_process_leaves_a_table_of_what_was_not_run(tmp_path, stand_in):
    stand_in(one="reference")

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", watch=interrupt)
    assert table(tmp_path)["one tiny_fcn"]["reason"] == trials.NOT_RUN


def drive(folder: Path, temporary: Path | None = None) -> subprocess.Popen[str]:
    """Start `dlbench run` of the reference as a process of its own, with its lines on a pipe and a TMPDIR of its own."""
    suite = folder.parent / "suite.yaml"
    suite.write_text(yaml.safe_dump({**SMALL, "frameworks": "reference", "networks": NETWORKS}))
    command = [*DRIVER, "run", str(suite), "--out", str(folder), "--interpreter", f"reference={sys.executable}"]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "COLUMNS": "200", "TMPDIR": str(temporary or "/tmp")}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background ignores it


def test_a_killed_campaign_resumes_and_loses_nothing_that_was_finished(tmp_path, workers_in):
    folder = tmp_path / "campaign"
    with drive(folder) as driver:
        lines = iter(driver.stdout)
        assert any(line.startswith("2/4 ") for line in lines)
        driver.send_signal(signal.SIGKILL)
    assert workers_end(lambda: workers_in(folder))
    killed = reader.read(folder)
    assert 2 <= len(killed.processes) <= 3
    left, process = next((trial["trial"], process) for process in (1, 0) for trial in killed.trials
                         if not ((killed.processes["trial"] == trial["trial"]) & (killed.processes["process"] == process)).any())
    with (folder / "windows.csv").open("a") as file:  # as if the kill had come between a process's windows and its row
        file.write(f"{left},{process},-1,1,1,1.0,2.0,1.0,1.0,777.0\n{left},{process},0,1,")

    with pytest.warns(UserWarning, match=r"windows\.csv: the last line is unfinished"):
        done = run(folder, resume=True, frameworks="reference", networks=NETWORKS, interpreters={"reference": sys.executable})
    pd.testing.assert_frame_equal(done.processes.iloc[:len(killed.processes)], killed.processes, check_exact=True)
    pd.testing.assert_frame_equal(done.windows.iloc[:len(killed.windows)], killed.windows, check_exact=True)
    assert Counter(zip(done.processes["trial"], done.processes["process"], strict=True)) == Counter(
        (trial["trial"], process) for trial in done.trials for process in range(2))
    assert 777.0 not in done.windows["loss"].tolist()
    assert ",777.0\n" not in (folder / "windows.csv").read_text()
    assert {row["status"] for row in table(folder).values()} == {"ok"}
    assert done.meta["finished"] and done.meta["started"] == killed.meta["started"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_campaign_that_is_told_to_end_leaves_no_process_and_no_temporary_file(tmp_path, workers_in, number):
    folder, temporary = tmp_path / "campaign", tmp_path / "t"
    temporary.mkdir()
    with drive(folder, temporary) as driver:
        lines = iter(driver.stdout)
        assert any(line.startswith("1/4 ") for line in lines)
        assert [path.name.startswith("dlbench-") for path in temporary.iterdir()] != []
        driver.send_signal(number)
        assert "Stopped; every finished process is kept. Go on with: dlbench run " in "".join(lines)
    assert driver.returncode == 1
    assert workers_in(folder) == []
    assert list(temporary.iterdir()) == []
    assert len(reader.read(folder).processes) >= 1


def test_an_environment_that_cannot_be_built_costs_its_own_trials_only(tmp_path, stand_in, monkeypatch):
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
    assert rows["broken tiny_fcn"]["reason"] == "crashed: its environment could not be built: no wheel for this Python"


def workers_end(workers, seconds=30.0) -> bool:
    """Wait until no worker is left: one that had just been started when its driver died shows up late and ends by itself."""
    deadline = time.monotonic() + seconds
    while (left := workers()) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=1)
    return not left


@pytest.fixture
def begun(tmp_path, stand_in) -> Path:
    """A campaign of one process."""
    stand_in(one="reference")
    run(tmp_path / "begun", frameworks="one", processes=1)
    return tmp_path / "begun"


@pytest.mark.parametrize(("change", "reason"), [
    ({"networks": "tiny_lstm"}, "the suite plans other trials now (one-{np}-tiny_fcn-b4-cpux1-t1-fp32-stock-host, one-{np}-"),
    ({"batch": 8}, "the suite plans other trials now (one-{np}-tiny_fcn-b4-"),
    ({"processes": 3}, "processes is 3 now and was 1: "), ({"windows": 3}, "windows is 3 now and was 2: "),
    ({"window_seconds": 0.02}, "window_seconds is 0.02 now and was 0.01: "), ({"seed": 2}, "seed is 2 now and was 1: "),
    ({"check": {"steps": 3}}, "check is {{'batch': 2, 'steps': 3}} now and was {{'batch': 2, 'steps': 2}}: "),
])
def test_another_suite_cannot_resume_a_campaign(begun, stand_in, change: dict[str, Any], reason: str):
    built = stand_in(one="reference")
    files = {path: path.read_bytes() for path in begun.glob("*.*")}
    with pytest.raises(WrongUse) as caught:
        run(begun, resume=True, **{"frameworks": "one", "processes": 1, **change})
    assert str(caught.value).startswith(f"{begun}: {reason.format(np=np.__version__)}")
    assert str(caught.value).endswith("resume with the suite and overrides that began this campaign, or begin another with --out")
    assert built == []
    assert {path: path.read_bytes() for path in begun.glob("*.*")} == files


def test_another_wire_cannot_resume_a_campaign_and_other_sources_are_noted(begun, stand_in, monkeypatch):
    built = stand_in(one="reference")
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    with pytest.raises(WrongUse, match=r"campaign\.json: variables\.NCCL_P2P_DISABLE was not set, and is 1 now: put back"):
        run(begun, resume=True, frameworks="one", processes=1)
    assert built == []
    monkeypatch.delenv("NCCL_P2P_DISABLE")
    header = (begun / "processes.csv").read_text().splitlines()[0]
    (begun / "processes.csv").write_text(f"{header}\n")  # as if it had been killed in its first process
    monkeypatch.setattr(campaign.manifest, "source_hash", lambda: "b" * 64)
    done = run(begun, resume=True, frameworks="one", processes=1)
    assert done.meta["resumed"] == ["with other sources of dlbench (SHA-256 bbbbbbbbbbbb)"]
    assert table(begun)["one tiny_fcn"]["reason"].endswith("; resumed with other sources of dlbench (SHA-256 bbbbbbbbbbbb)")


def test_records_that_do_not_say_their_variables_cannot_be_resumed(begun, stand_in):
    stand_in(one="reference")
    page = json.loads((begun / "campaign.json").read_text())
    del page["variables"]
    (begun / "campaign.json").write_text(json.dumps(page))
    with pytest.raises(WrongUse, match=r"campaign\.json: no key variables: .* begin another with --out"):
        run(begun, resume=True, frameworks="one", processes=1)


def test_a_finished_campaign_resumes_to_the_same_records_with_more_patience(begun, stand_in):
    stand_in(one="wire:Raises")  # nothing is left to run, so nobody sees it
    files = {name: (begun / name).read_bytes() for name in ("processes.csv", "windows.csv", "trials.csv")}
    run(begun, resume=True, frameworks="one", processes=1, limits={"window": 1000})
    assert {name: (begun / name).read_bytes() for name in files} == files


def test_a_folder_that_holds_a_campaign_is_refused_before_anything_is_built(begun, stand_in):
    built = stand_in(one="reference")
    before = (begun / "campaign.json").read_text()
    with pytest.raises(WrongUse) as caught:
        run(begun, frameworks="one", processes=1)
    assert str(caught.value) == f"{begun} holds a campaign already: go on with --resume, or name another folder with --out"
    assert built == []
    assert (begun / "campaign.json").read_text() == before


def test_an_empty_folder_cannot_be_resumed(tmp_path, stand_in):
    built = stand_in(one="reference")
    with pytest.raises(WrongUse, match=r"campaign\.json: no such file; name a folder that `dlbench run` wrote"):
        run(tmp_path, resume=True, frameworks="one")
    assert built == []


def test_a_worker_gets_threads_and_ieee_products_and_no_gpu():
    environment = Environment("one", "1.0", "cpu", Path("python"), "key", "3.11", (), {"LD_LIBRARY_PATH": "lib"}, "built")
    cpu, cuda = Machine("cpu", 4, 1), Machine("cuda", 4, 1)

    def of(machine: Machine, **suite: Any) -> dict[str, str]:
        suite = Suite.model_validate({"frameworks": "mxnet", "networks": "tiny_fcn", "batches": 4, "threads": 3, **suite})
        return variables(environment, make_trials(suite, {"mxnet": "1.0"}, machine, lambda name: False)[0])

    threads = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    assert of(cpu) == {"LD_LIBRARY_PATH": "lib", **threads, "CUDA_VISIBLE_DEVICES": "", "NVIDIA_TF32_OVERRIDE": "0"}
    assert of(cuda) == {"LD_LIBRARY_PATH": "lib", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_TF32_OVERRIDE": "0"}
    assert of(cuda, precision="tf32") == {"LD_LIBRARY_PATH": "lib", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_suite_on_both_kinds_of_device_has_each_trial_twice_and_refuses_the_gpus_that_are_not_here(monkeypatch):
    described = {**campaign.hardware.describe(), "gpus": []}
    monkeypatch.setattr(campaign.hardware, "describe", lambda: described)
    suite = {**SMALL, "device": "both", "frameworks": "pytorch==2.13.0"}
    prepared = campaign.prepare(Suite.model_validate(suite), "suite.yaml")
    assert [(trial.device_kind, trial.status) for trial in prepared.trials] == [("cpu", "planned"), ("cuda", "unsupported")]
    assert len({trial.trial for trial in prepared.trials}) == 2


def test_trials_on_both_kinds_of_device_share_the_gpus_environment(monkeypatch):
    suite = Suite.model_validate({**SMALL, "frameworks": "pytorch", "device": "both"})
    trials = [trial for kind in ("cpu", "cuda")
              for trial in make_trials(suite, {"pytorch": "2.13.0"}, Machine(kind, 2, 1), lambda name: False)]
    made = []
    monkeypatch.setattr(session.store, "build", lambda framework, release, kind, say: made.append((framework, kind)))
    session.build_environments(session.Plan(suite, "suite.yaml", trials, {}, "cuda"), print)
    session.build_environments(session.Plan(suite, "suite.yaml", trials[:1], {}, "cuda"), print)
    assert made == [("pytorch", "cuda"), ("pytorch", "cpu")]
