"""The judge lets rounding pass and refuses every planted fault, each through a real worker and with a reason that names it."""

import math
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import networks
from harness.proof import judge as judging
from harness.proof.judge import Verdict
from harness.workers.worker import Failed, Worker


def worded(reason: str) -> str:
    """A reason with # for what the draw of weights and the tolerances decide: losses, errors, and what is allowed."""
    return re.sub(r"\b(loss|for|error|allowed) \d+\.\d+", r"\1 #", reason)


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_cnn", "tiny_dropout", "tiny_resnet", "tiny_bottleneck", "tiny_lstm"])
def test_the_reference_is_the_same_as_itself(verdict, name: str):
    assert verdict("reference", name) == Verdict("same", "", networks.get(name).parameter_count, 0.0, 0.0, 0.0)


def test_errors_of_single_precision_are_the_same(verdict):
    found = verdict("reference", "tiny_fcn", fault="Noisy")
    assert (found.verdict, found.reason, found.parameters, found.trajectory_error) == ("same", "", 861, 0.0)
    assert (found.loss_error, found.gradient_error) == pytest.approx((1e-7, 1e-6), rel=1e-3)


def test_what_a_worker_cannot_do_is_unsupported_with_its_words(verdict):
    found = verdict("reference", "tiny_fcn", precision="bf16")
    assert (found.verdict, found.reason) == ("unsupported", "precision 'bf16': the reference computes in float64 and judges fp32")


def test_a_worker_that_breaks_is_different_with_its_failure(verdict):
    found = verdict("reference", "tiny_fcn", fault="wire:Segfault")
    assert found.verdict == "different"
    assert found.reason.startswith("crashed: the worker ended during 'check' with signal SIGSEGV; log: ")
    assert math.isnan(found.gradient_error)


@pytest.mark.parametrize(("devices", "strategy", "file"), [(1, "", ".reference"), (2, "power_sgd", ".reference.2")])
def test_a_failure_of_the_reference_says_so_and_is_not_remembered(verdict, judge, monkeypatch, devices, strategy, file):
    ask = judging._ask

    def hang(worker: Worker, question: judging.Question, task: dict, steps: int, out: Path) -> tuple[int, list[float]]:
        if out == question.reference and out.stem.endswith(file):
            raise Failed("timed_out", "no answer to 'check' within 600 s")
        return ask(worker, question, task, steps, out)

    monkeypatch.setattr(judging, "_ask", hang)
    monkeypatch.setattr(judge, "losses", {})
    asked = {"fault": "ranks:Runner", "devices": 2, "strategy": strategy} if devices > 1 else {}
    found = verdict("reference", "tiny_fcn", **asked)
    assert (found.verdict, found.reason) == ("different", "timed_out: the reference: no answer to 'check' within 600 s")
    assert (found.failure, found.may_pass) == ("timed_out", True)
    monkeypatch.setattr(judging, "_ask", ask)
    assert verdict("reference", "tiny_fcn", **asked).verdict == "same"


@pytest.mark.parametrize(("kind", "may_pass"), [("timed_out", False), ("crashed", False), ("out_of_memory", True)])
def test_of_a_workers_own_failures_want_of_memory_may_pass(kind, may_pass):
    assert Verdict("different", f"{kind}: after the reference: silence", failure=kind).may_pass is may_pass
    assert not Verdict("same").may_pass and not Verdict("unsupported", "the reference: only on Linux").may_pass


def dead_branch(network: dict) -> None:
    """The head reads the first LSTM: the second one, of equal width, is not on the path to the loss."""
    network["layers"][-1]["inputs"] = ["lstm1"]


def relu_on_logits(network: dict) -> None:
    last = network["layers"][-1]
    relu = {"name": "relu9", "op": "relu", "inputs": [last["name"]], "attributes": {}, "parameters": {}}
    network["layers"].append({**last, **relu})


def no_relu_after_addition(network: dict) -> None:
    addition = next(layer for layer in network["layers"] if layer["op"] == "add")
    relu = next(layer for layer in network["layers"] if layer["inputs"] == [addition["name"]])
    for layer in network["layers"]:
        layer["inputs"] = [addition["name"] if source == relu["name"] else source for source in layer["inputs"]]


def no_shortcut(network: dict) -> None:
    """An addition that takes its branch twice: the shortcut is lost."""
    addition = next(layer for layer in network["layers"] if layer["op"] == "add")
    addition["inputs"] = addition["inputs"][:1] * 2


@pytest.mark.parametrize(("name", "plant", "reason"), [
    ("tiny_lstm", dead_branch,
     "loss # for #; 9 of 9 gradients differ, from the loss backwards first dense1.bias (dense, relative error #, "),
    ("tiny_fcn", relu_on_logits,
     "loss # for #; 8 of 8 gradients differ, from the loss backwards first dense4.bias (dense, relative error #, "),
    ("tiny_resnet", no_relu_after_addition,
     "loss # for #; 23 of 23 gradients differ, from the loss backwards first dense1.bias (dense, relative error #, "),
    ("tiny_resnet", no_shortcut,
     "loss # for #; 23 of 23 gradients differ, from the loss backwards first dense1.bias (dense, relative error #, "),
])
def test_another_function_is_different_in_its_loss_and_gradients(verdict, name: str, plant: Callable[[dict], None], reason: str):
    found = verdict("reference", name, plant=plant)
    assert (found.verdict, found.parameters) == ("different", networks.get(name).parameter_count)
    assert worded(found.reason) == f"{reason}allowed #)"


@pytest.mark.parametrize(("name", "fault", "reason"), [
    ("tiny_cnn", "Ceil", "different: layer max_pool1: output (4, 9, 9), the network has (4, 8, 8)"),
    ("tiny_fcn", "Swapped", "different: layer dense1: output (24,), the network has (16,)"),
    ("tiny_fcn", "TrainableInput", "873 parameters for 861"),
    ("tiny_resnet", "NoScale", "loss # for #; 23 of 23 gradients differ, from the loss backwards first dense1.bias "
                                        "(dense, relative error #, allowed #)"),
    ("tiny_lstm", "FirstWords", "loss # for #; 9 of 9 gradients differ, from the loss backwards first dense1.bias "
                                         "(dense, relative error #, allowed #)"),
    ("tiny_fcn", "Nan", "1 of 8 gradients differ, from the loss backwards first dense2.bias (dense, relative error nan, "
                        "allowed #)"),
    ("tiny_fcn", "Missing", "no gradient of dense2.bias was answered"),
    ("tiny_fcn", "Transposed", "the gradient of dense2.weight has shape (16, 24), not (24, 16)"),
])
def test_a_planted_fault_is_different_and_its_reason_names_it(verdict, name: str, fault: str, reason: str):
    found = verdict("reference", name, fault=fault)
    assert (found.verdict, worded(found.reason)) == ("different", reason)


@pytest.mark.parametrize(("fault", "reason"), [
    ("Nesterov", "its first step is 1.90 times as long: Nesterov momentum"),
    ("LearningRate", "its first step is 0.2 times as long: learning rate 0.01, not 0.05"),
    ("NoMomentum", "its first step is right, so the momentum differs"),
])
def test_another_optimiser_is_different_and_named_by_its_first_step(verdict, judge, fault: str, reason: str):
    found = verdict("reference", "tiny_fcn", fault=fault)
    moved, named = worded(found.reason).split(": the optimiser differs; ")
    assert re.fullmatch(rf"gradients agree, but after {judge.steps} steps dense\d\.\w+ has moved otherwise "
                        r"\(relative error #, allowed #\)", moved)
    assert (found.verdict, named) == ("different", reason)
    assert (found.loss_error, found.gradient_error) == (0.0, 0.0)


def test_a_kink_that_turned_on_one_draw_is_the_same_on_the_next(verdict):
    assert verdict("reference", "tiny_cnn", fault="Kink") == Verdict("same", "", 1614, 0.0, 0.0, 0.0)


def test_what_looks_like_a_kink_on_every_draw_is_a_fault(verdict):
    found = verdict("reference", "tiny_cnn", fault="KinkAlways")
    assert found.verdict == "different"
    assert worded(found.reason) == ("8 of 8 gradients differ, from the loss backwards first dense1.bias "
                                    "(dense, relative error #, allowed #)")
    assert found.gradient_error == pytest.approx(5e-4)


@pytest.mark.parametrize(("name", "fault", "found"), [
    ("tiny_cnn", "KinkFirst", "same"),  # far from the loss alone
    ("tiny_cnn", "KinkAlways", "different"),  # next to the loss, too
    ("tiny_resnet", "KinkFirst", "different"),  # batch norm's shifts keep it away from kinks
    ("tiny_fcn", "KinkFirst", "different"),  # no kinks
])
def test_of_many_activations_some_always_lie_at_a_kink(verdict, monkeypatch, name, fault, found):
    monkeypatch.setattr("harness.proof.judge.MANY_ACTIVATIONS", 0)
    assert verdict("reference", name, fault=fault).verdict == found


def test_of_few_activations_none_always_lies_at_a_kink(verdict):
    assert verdict("reference", "tiny_cnn", fault="KinkFirst").verdict == "different"


def test_a_network_without_kinks_gets_one_draw(verdict):
    found = verdict("reference", "tiny_fcn", fault="Kink")
    assert (found.verdict, found.gradient_error) == ("different", pytest.approx(5e-4))


def test_each_draw_has_weights_and_batches_of_its_own(verdict, judge):
    verdict("reference", "tiny_cnn", fault="Kink")
    for kind in ("weights", "batches"):
        one, other = (judge.folder / f"check-tiny_cnn-{draw}.{kind}.npz" for draw in (0, 1))
        with np.load(one) as first, np.load(other) as second:
            assert {name: np.array_equal(first[name], second[name]) for name in first.files} == dict.fromkeys(first.files, False)


@pytest.mark.parametrize(("network", "found"), [("tiny_cnn", "same"), ("tiny_fcn", "different")])
def test_in_few_bits_a_network_with_kinks_is_drawn_anew_and_a_smooth_one_is_not(verdict, network, found):
    assert verdict("reference", network, fault="KinkBf16", precision="bf16").verdict == found


def test_references_of_different_networks_run_side_by_side_and_one_network_has_one(monkeypatch, tmp_path):
    meeting, found = threading.Barrier(2, timeout=60), Counter()  # breaks where one reference waits for the other to end
    ask = judging._ask

    def counted(worker: Worker, question: judging.Question, task: dict, steps: int, out: Path) -> tuple[int, list[float]]:
        if out == question.reference:
            found[question.network.name] += 1
            meeting.wait()
        return ask(worker, question, task, steps, out)

    monkeypatch.setattr(judging, "_ask", counted)
    judge = judging.Judge(tmp_path, batch=2, steps=1, seed=1, limit=600)
    task = {"device": "cpu", "threads": 1, "precision": "fp32", "tuning": "stock"}

    def verdict(name: str) -> str:
        with Worker(sys.executable, "runners.reference.runner", tmp_path / "worker.log") as worker:
            return judge.judge(worker, networks.get(name), task).verdict

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(verdict, ["tiny_fcn", "tiny_lstm", "tiny_fcn"])) == ["same"] * 3
    assert found == {"tiny_fcn": 1, "tiny_lstm": 1}
