"""What campaigns of tiny networks, through real workers, plan and record."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from analysis.records import reader
from analysis.trials import summary as trials
from harness.campaign import campaign, session
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.machine import preflight
from harness.machine.hardware import Concern
from harness.plan.planner import Machine, execution_order, make_trials
from harness.plan.suite import Suite
from harness.telemetry.sampler import PERIODS, Sampler
from harness.workers.launch import variables
from tests.harness.campaigns import SMALL, run, table


def test_a_campaign_records_every_process_window_and_trial(tmp_path, stand_in):
    stand_in(one="reference", two="reference:Noisy")
    seen = []
    done = run(tmp_path, frameworks=["one", "two"], networks=["tiny_fcn", "tiny_dropout"],
               watch=seen.append)

    processes = done.processes
    suite = Suite.model_validate({**SMALL, **done.meta["suite"]})
    planned = make_trials(suite, dict.fromkeys(["one", "two"], np.__version__),
                          Machine("cpu", 1, 1), lambda name: False)
    order = [(trial.trial, process) for trial, process in execution_order(planned, 2, suite.seed)]
    assert list(zip(processes["trial"], processes["process"], strict=True)) == order
    assert processes["order"].tolist() == list(range(8))
    assert set(processes["status"]) == {"ok"}
    assert set(processes["reason"]) == {""}
    assert set(processes["check"]) == {"same"} and set(processes["check_reason"]) == {""}
    proof = processes.filter(like="proof_").astype(float)
    assert (proof["proof_seconds"] > 0).all() and (proof["proof_rate_error"] <= 0.01).all()
    assert proof["proof_limit_share"].between(0, 1, inclusive="neither").all()
    second, whole = processes["second_proof_seconds"], processes["process_seconds"]
    assert second.gt(0).all() and (second < proof["proof_seconds"]).all()
    assert (proof["proof_seconds"] + processes["build_seconds"] < whole).all()
    dropout = processes["trial"].str.contains("tiny_dropout")
    assert (proof["proof_frozen_share"][~dropout] == 0).all()
    assert (proof["proof_gradient_error"][~dropout] < 1e-3).all()
    assert (proof["proof_gradient_error"][dropout] > 1e-3).all()
    assert all((tmp_path / log).is_file() for log in processes["log"])
    phases = [
        event.phase for event in seen
        if event.trial.trial.startswith("one") and not event.process and not event.trial.dropout
    ]
    assert phases[:4] == ["asking the reference", "starting", "building", "proving"]
    assert phases[-2:] == ["timing", "proving"]
    assert Counter((event.trial.trial, event.process) for event in seen
                   if event.phase == "starting") == Counter(order)

    assert set(zip(done.windows["trial"], done.windows["process"], strict=True)) == set(order)
    for row in processes.itertuples():
        windows = done.windows[(done.windows["trial"] == row.trial)
                               & (done.windows["process"] == row.process)]
        length = int(row.window_steps)
        doublings = [2**power for power in range(1, length.bit_length())]
        assert windows["steps"].tolist() == [1] * 8 + doublings + [length] * 2
        assert windows["window"].tolist() == list(range(-8 - len(doublings), 2))
        assert windows["last_step"].tolist() == windows["steps"].cumsum().tolist()
        assert (windows["stop"] > windows["start"]).all()
        assert (windows["start"].diff().iloc[1:] > 0).all()
        assert np.allclose(windows["seconds"], windows["stop"] - windows["start"])
        assert np.allclose(windows["step_seconds"] * windows["steps"], windows["seconds"])
        assert windows["seconds"].iloc[-3] >= 0.01 and np.isfinite(windows["loss"]).all()

    rows = table(tmp_path)
    assert sorted(rows) == ["one tiny_dropout", "one tiny_fcn", "two tiny_dropout", "two tiny_fcn"]
    assert {(row["status"], row["verified"], row["reason"].partition(";")[0], row["processes"],
             row["windows"]) for row in rows.values()
            } == {("ok", "yes", "no interval: 2 of at least 3 processes", "2", "4")}
    # A new campaign has no caveats, and this one no other nodes and no GPU.
    assert (*rows["one tiny_fcn"], "caveat", *trials.OF_NODES, *trials.OF_INFERENCE,
            *trials.OF_REPETITION, *trials.OF_TARGET, *trials.OF_FILES,
            *trials.OF_DRIVERS, *trials.OF_TESTS, *trials.OF_PIPELINES) == trials.COLUMNS
    assert not list(tmp_path.glob("*.new"))


def test_the_first_page_says_what_was_planned_where_and_with_what(tmp_path, stand_in):
    built = stand_in(one="reference", two="reference")
    done = run(tmp_path / "first", frameworks=["one", "two"], processes=1)
    meta = json.loads((tmp_path / "first" / "campaign.json").read_text())
    assert meta == done.meta
    assert (meta["schema"], meta["name"], meta["suite_file"],
            meta["seed"]) == (reader.SCHEMA, "first", "suite.yaml", 1)
    assert meta["finished"] >= meta["started"]
    assert Suite.model_validate(meta["suite"]) == Suite.model_validate(
        {**SMALL, "frameworks": ["one", "two"], "processes": 1})
    assert sorted(meta["environments"]) == [f"one=={np.__version__}", f"two=={np.__version__}"]
    assert built == ["one", "two"]
    assert [trial["status"] for trial in meta["trials"]] == ["planned", "planned"]


def test_the_memory_that_the_driver_charged_to_a_workers_own_processes_is_recorded(tmp_path, stand_in, monkeypatch):
    asked = []

    def held_by(sampler, processes):
        asked.append({psutil.Process(each).name() for each in processes()})
        return 4096 * len(asked)

    monkeypatch.setattr(Sampler, "held_by", held_by)
    stand_in(one="reference")
    done = run(tmp_path, frameworks="one")
    assert done.processes["device_memory_bytes"].tolist() == [4096, 8192]
    assert len(asked) == 2 and all(len(each) == 1 and "python" in min(each) for each in asked)


def test_what_a_kept_worker_holds_is_not_recorded_because_its_pools_grew_in_other_trials(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(Sampler, "held_by", lambda sampler, processes: 4096)
    stand_in(one="reference")
    assert run(tmp_path, frameworks="one", keep_workers=True).processes["device_memory_bytes"].isna().all()


def test_without_a_gpu_nothing_is_held(tmp_path, stand_in):
    stand_in(one="reference")
    assert run(tmp_path, frameworks="one").processes["device_memory_bytes"].isna().all()


def test_every_process_leaves_counters_unless_the_suite_wants_none(tmp_path, stand_in):
    stand_in(one="reference")
    done = run(tmp_path / "with", frameworks="one")
    hosts = done.counters[(done.counters["device"] == "host") & (done.counters["kind"] == "slow")]
    assert hosts.groupby("process").size().ge(2).tolist() == [True, True]
    assert (hosts["cpu_seconds"] > 0).all() and (hosts["memory_used_bytes"] > 0).all()
    assert done.meta["telemetry"]["sources"][0]["device"] == "host"
    without = run(tmp_path / "without", frameworks="one", telemetry=False)
    assert (len(without.processes), len(without.counters)) == (2, 0)
    assert without.meta["telemetry"] == {
        "period_seconds": PERIODS, "sources": [],
        "not_measured": ["traffic, energy and clocks: the suite says telemetry: false"]
    }


def test_a_dirty_machine_is_refused_before_anything_starts_or_marks_every_row(
        tmp_path, stand_in, monkeypatch):
    built = stand_in(one="reference")
    monkeypatch.setattr(preflight, "APART_SECONDS", 0)
    monkeypatch.setattr(
        preflight, "dirt",
        lambda described, gpus: [Concern("GPU 0: other processes use it: 7 miner", "end them")])
    with pytest.raises(WrongUse, match=r"7 miner: end them; or go on with --allow-dirty"):
        run(tmp_path / "refused", frameworks="one")
    assert built == [] and not (tmp_path / "refused").exists()
    run(tmp_path / "dirty", frameworks="one", allow_dirty=True)
    monkeypatch.setattr(preflight, "dirt", lambda described, gpus: [])
    done = run(tmp_path / "dirty", resume=True, frameworks="one")
    assert done.meta["dirty"] == ["GPU 0: other processes use it: 7 miner"]
    reason = table(tmp_path / "dirty")["one tiny_fcn"]["reason"]
    assert reason.endswith("measured on a dirty machine: " + done.meta["dirty"][0])


def test_the_first_page_says_what_a_real_set_was_read_from(tmp_path, stand_in):
    stand_in(one="reference")
    suite = Suite.model_validate({
        "frameworks": "one", "networks": "fcn5", "batches": 4, "device": "cpu",
        "data": ["real", "host"]
    })
    first = campaign.first_page(campaign.prepare(suite, "suite.yaml"), tmp_path, {})
    assert list(first["data_sets"]) == ["mnist"]
    assert "digits" in first["data_sets"]["mnist"] or "images" in first["data_sets"]["mnist"]


def test_a_lock_does_not_say_where_the_environment_lay(tmp_path):
    made = Environment("one", "1.0", "cpu", tmp_path / "envs/one/bin/python", "key", "3.11", (),
                       {"LD_LIBRARY_PATH": f"{tmp_path}/envs/one/lib:/lib", "QUIET": "1"}, "built")
    lock = campaign._lock(made)
    assert lock["variables"] == {"LD_LIBRARY_PATH": "{folder}/lib:/lib", "QUIET": "1"}
    assert str(tmp_path) not in json.dumps(lock)


def test_a_worker_gets_threads_and_ieee_products_and_no_gpu():
    environment = Environment("one", "1.0", "cpu", Path("python"), "key", "3.11", (),
                              {"LD_LIBRARY_PATH": "lib"}, "built")
    cpu, cuda = Machine("cpu", 4, 1), Machine("cuda", 4, 1)

    def of(machine: Machine, **suite: Any) -> dict[str, str]:
        suite = Suite.model_validate(
            {"frameworks": "mxnet", "networks": "tiny_fcn", "batches": 4, "threads": 3, **suite})
        return variables(environment,
                         make_trials(suite, {"mxnet": "1.0"}, machine, lambda name: False)[0])

    threads = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    assert of(cpu) == {
        "LD_LIBRARY_PATH": "lib", **threads, "CUDA_VISIBLE_DEVICES": "", "NVIDIA_TF32_OVERRIDE": "0"
    }
    assert of(cuda) == {
        "LD_LIBRARY_PATH": "lib", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_TF32_OVERRIDE": "0"
    }
    assert of(cuda, precision="tf32") == {
        "LD_LIBRARY_PATH": "lib", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"
    }


def test_a_suite_on_both_kinds_of_device_has_each_trial_twice_and_refuses_missing_gpus(
        monkeypatch):
    described = {**campaign.hardware.describe(), "gpus": []}
    monkeypatch.setattr(campaign.hardware, "describe", lambda: described)
    suite = {**SMALL, "device": "both", "frameworks": "pytorch==2.13.0"}
    prepared = campaign.prepare(Suite.model_validate(suite), "suite.yaml")
    assert [(trial.device_kind, trial.status)
            for trial in prepared.trials] == [("cpu", "planned"), ("cuda", "unsupported")]
    assert len({trial.trial for trial in prepared.trials}) == 2


def test_trials_on_both_kinds_of_device_share_the_gpus_environment(monkeypatch):
    suite = Suite.model_validate({**SMALL, "frameworks": "pytorch", "device": "both"})
    trials = [
        trial for kind in ("cpu", "cuda") for trial in make_trials(
            suite, {"pytorch": "2.13.0"}, Machine(kind, 2, 1), lambda name: False)
    ]
    made = []
    monkeypatch.setattr(session.store, "build",
                        lambda framework, release, kind, say: made.append((framework, kind)))
    session.build_environments(session.Plan(suite, "suite.yaml", trials, {}, "cuda"), print)
    session.build_environments(session.Plan(suite, "suite.yaml", trials[:1], {}, "cuda"), print)
    assert made == [("pytorch", "cuda"), ("pytorch", "cpu")]
