"""Limits hold for the network and reference they were derived from, else they are derived anew."""

import json
import math
import runpy
import sys

import numpy as np
import pytest

import networks
from harness.campaign import campaign
from harness.machine import hardware
from harness.plan.suite import Suite
from harness.proof import limits
from harness.proof.case import parts_of
from harness.proof.judge import Judge
from harness.proof.limits import COMMON, FACTOR, FLOOR, LOSS_FLOOR, LimitsOf
from harness.proof.questions import PLAIN, Questions
from tests.conftest import TASK

ROOT = limits.SOURCES.parents[1]
KEPT = sorted(file.stem.rpartition("-s")[0] for file in limits.KEPT.glob("*.json"))
DERIVED = {"loss": 1e-3, "tensors": {"dense1.weight": [0.1, 0.2, 0.3]}}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dlbench" / "limits"


def test_all_limits_of_small_networks_are_kept_and_hold(monkeypatch, capsys):
    small = [name for name in networks.names(small=True) if name.startswith("tiny_")]
    monkeypatch.setattr(sys, "argv", ["derive_limits.py", "--check", *small])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / "derive_limits.py"), run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, "")


def test_limits_that_depend_on_something_else_are_named(monkeypatch, capsys):
    monkeypatch.setattr(limits, "RUNS", 4)
    monkeypatch.setattr(sys, "argv", ["derive_limits.py", "--check", "tiny_fcn", "tiny_cnn"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / "derive_limits.py"), run_name="__main__")
    assert ended.value.code == 1
    assert capsys.readouterr().out == "".join(
        f"{name}: fp32 plain, tf32 plain, bf16 plain, fp16 plain: missing or out of date; run scripts/derive_limits.py {name}\n"
        for name in ("tiny_fcn", "tiny_cnn"))


@pytest.mark.parametrize("name", KEPT)
def test_kept_limits_hold_and_are_numbers_for_each_tensor_and_statistic(name):
    network = networks.get(name)
    found = limits.read(limits.KEPT, network, 2)
    assert found, f"they no longer hold: run scripts/derive_limits.py {name}"
    tensors = {part for part, _, _ in parts_of(network)} | {
        f"{layer.name}.{each}" for layer in network.layers if layer.op == "batch_norm"
        for each in ("mean", "variance")}
    for spread in found.values():
        assert set(spread["tensors"]) == tensors
        errors = np.array(list(spread["tensors"].values()))
        assert errors.shape[1:] == (3,) and np.isfinite([*errors.ravel(), spread["loss"]]).all()
        assert (errors >= 0).all()


def test_kept_limits_are_read_once_however_many_tensors_ask(judge, monkeypatch):
    """Each reading hashes the reference's code: 337 of them were most of ResNet-56's proof."""
    reads = []
    monkeypatch.setattr(limits, "kept", lambda *_: reads.append(1) or {"fp32 plain": DERIVED})
    question, found = judge.questions.question(networks.get("tiny_fcn"), 1, 1, 0), LimitsOf(judge.questions)
    assert found.of(question, "plain", "fp32") is found.of(question, "plain", "fp32")
    assert len(reads) == 1


@pytest.mark.parametrize("change", [
    lambda described: described.update(learning_rate=0.02),
    lambda described: described["layers"][0]["attributes"].update(units=17)])
def test_limits_depend_on_what_a_network_computes(monkeypatch, change):
    network = networks.get("tiny_fcn")
    before, to_json = limits.depends_on(network), networks.Network.to_json

    def changed(self):
        described = json.loads(json.dumps(to_json(self)))
        change(described)
        return described

    monkeypatch.setattr(networks.Network, "to_json", changed)
    assert limits.depends_on(network) != before


def test_limits_depend_on_the_references_code_but_on_none_of_its_comments(monkeypatch, tmp_path):
    network = networks.get("tiny_fcn")
    before = limits.depends_on(network)
    for name in ("operations", "rounded"):
        source = (limits.SOURCES / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text("# A comment.\n\n" + source)
    monkeypatch.setattr(limits, "SOURCES", tmp_path)
    assert limits.depends_on(network) == before
    (tmp_path / "rounded.py").write_text(source + "\nMORE = 1\n")
    assert limits.depends_on(network) != before


def test_those_of_another_number_of_samples_are_derived_once_and_kept(worker_for, cache, tmp_path,
                                                                      monkeypatch):
    network = networks.get("tiny_fcn")
    with worker_for("reference", "", {}) as worker:
        judge = Judge(tmp_path, samples=1, steps=2, seed=1, limit=600)
        assert judge.judge(worker, network, TASK, batch=3).verdict == "same"
    file = cache / "tiny_fcn-s1.json"
    page = json.loads(file.read_text())
    assert (page["network"], page["samples"], page["runs"]) == ("tiny_fcn", 1, 12)
    assert list(page["largest_errors"]) == ["fp32 plain"]
    tensors = page["largest_errors"]["fp32 plain"]["tensors"]
    assert set(tensors) == set(network.parameter_shapes)
    # fp32 with three bits less for its sums.
    assert 0 < max(max(errors) for errors in tensors.values()) < 1e-4

    monkeypatch.delattr(Questions, "spread")
    known = LimitsOf(judge.questions).of(judge.questions.question(network, 1, 1, 0), PLAIN, "fp32")
    assert known.tensors["dense1.weight"].distance == pytest.approx(
        FACTOR * tensors["dense1.weight"][2] + FLOOR)


@pytest.fixture
def derived(monkeypatch):
    """What is derived is made up; a list of the precisions that were."""
    asked = []
    monkeypatch.setattr(limits, "derive", lambda questions, network, samples, kind, precision:
                        asked.append(precision) or DERIVED)
    return asked


def of(judge: Judge, precision: str) -> limits.Limits:
    question = judge.questions.question(networks.get("tiny_fcn"), 5, 1, 0)
    return LimitsOf(judge.questions).of(question, PLAIN, precision)


@pytest.mark.parametrize(("precision", "floor"), [
    ("fp32", FLOOR), ("tf32", FLOOR), ("bf16", FLOOR + COMMON["bf16"]),
    ("fp16", FLOOR + COMMON["fp16"])])
def test_a_limit_is_several_times_the_spread_above_a_floor(judge, derived, precision, floor):
    found = of(judge, precision)
    allowed = found.tensors["dense1.weight"]
    assert (allowed.coefficient, allowed.norm, allowed.distance) == pytest.approx(
        (0.1 * FACTOR + floor, 0.2 * FACTOR + floor, 0.3 * FACTOR + floor))
    assert found.loss == pytest.approx(1e-3 * FACTOR + LOSS_FLOOR + COMMON.get(precision, 0))
    assert 3 <= FACTOR <= 5
    assert 2e-4 < FLOOR < 2.1e-4 and math.isclose(LOSS_FLOOR, 170 * 2**-24)


def test_each_precision_is_derived_when_it_is_needed(judge, derived, cache):
    for precision in ("fp32", "bf16", "fp32", "bf16"):
        of(judge, precision)
    assert derived == ["fp32", "bf16"]
    page = json.loads((cache / "tiny_fcn-s5.json").read_text())
    assert page["largest_errors"] == {"bf16 plain": DERIVED, "fp32 plain": DERIVED}


@pytest.mark.parametrize("text", ["", "no JSON", '{"depends_on": "another", "largest_errors": '
                                  '{"fp32 plain": {}}}'])
def test_a_file_that_cannot_be_used_is_derived_anew(judge, derived, cache, text):
    cache.mkdir(parents=True)
    (cache / "tiny_fcn-s5.json").write_text(text)
    of(judge, "fp32")
    assert derived == ["fp32"]


def test_a_cache_that_cannot_be_written_costs_a_derivation_only(judge, derived, cache):
    cache.parents[1].write_text("a file")
    of(judge, "fp32")
    of(judge, "fp32")
    assert derived == ["fp32", "fp32"]


def test_limits_that_are_not_kept_need_a_machine_on_which_they_can_be_derived():
    large, gibibyte = networks.get("llama_1b"), 2**30
    said = limits.too_large(large, 2, "fp32", 24 * gibibyte)
    assert said.startswith("needs at least 49.2 GiB to derive the limits of its proof in fp32, the machine has 24.0 GiB; ")
    assert limits.too_large(large, 2, "fp32", 64 * gibibyte) == limits.too_large(large, 2, "fp32", None) == ""
    kept = networks.get("fcn5")
    assert limits.too_large(kept, 2, "fp32", 1) == "" != limits.too_large(kept, 1, "fp32", 1)


def test_training_llama_1b_is_refused_before_it_starts_and_other_networks_are_not():
    suite = Suite(frameworks="pytorch", networks=["llama_1b", "fcn5"], batches=(2,), device="cpu", data="host")
    machine = {**hardware.describe(), "nodes": [], "memory": {"total_bytes": 24 * 2**30}}
    refused, planned = campaign.prepare_side(suite, "suite.yaml", machine=machine).trials
    assert (refused.network, refused.status, planned.status) == ("llama_1b", "unsupported", "planned")
    assert refused.reason.startswith("out_of_memory: needs at least 49.2 GiB to derive the limits")
