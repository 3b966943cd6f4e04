"""A proof with dropout: masks change what weights move by, and the judge knows by how much.

Each proof goes through a real worker.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

import networks
from harness.proof import plays, questions
from harness.proof.judge import Judge
from tests.conftest import TASK


@pytest.mark.parametrize("name", ["tiny_dropout", "tiny_inception"])
def test_the_reference_with_dropout_is_the_same_within_what_its_masks_make(verdict, name: str):
    found = verdict("reference", name)
    assert (found.verdict, found.reason) == ("same", "")
    assert 1e-4 < found.loss_error < 0.25 and math.isnan(found.gradient_error)
    assert found.trajectory_error < 0.01
    # The head's bias shows the learning rate; two samples say little of other gradients.
    assert found.strength.rate == 0.01


@pytest.mark.parametrize(("fault", "reason"), [
    ("training:reference.Never", "dense2.bias moved 0 times as far as it must (allowed 0.99 to "
     "1.01): nothing was trained"),
    ("WeightDecay", "4 tensors moved although their gradient is zero"),
])
def test_with_dropout_too_a_step_whose_logits_are_zero_is_exact(verdict, fault, reason):
    found = verdict("reference", "tiny_dropout", fault=fault)
    assert found.verdict == "different" and found.reason.startswith(reason)


def test_all_weights_are_zero_where_dropout_hides_momentum_otherwise(judge):
    drawn = judge.questions.question(networks.get("tiny_dropout"), 2, 1, 0)
    zero = np.load(drawn.file(questions.ZERO))
    assert {name: zero[name].shape for name in zero.files} == drawn.network.parameter_shapes
    assert not any(zero[name].any() for name in zero.files)
    assert not questions.trains_from_zero(networks.get("tiny_fcn"))


def test_masks_behind_a_sigmoid_hide_momentum_and_the_proof_says_so(verdict, monkeypatch):
    network = networks.get("tiny_dropout")
    layers = [replace(layer, op="sigmoid") if layer.op == "relu" else layer
              for layer in network.layers]
    sigmoids = replace(network, layers=tuple(layers))
    assert questions.trains_from_zero(network) and not questions.trains_from_zero(sigmoids)

    for module in (questions, plays):
        monkeypatch.setattr(module, "trains_from_zero", lambda network: False)
    found = verdict("reference", "tiny_dropout")

    assert found.verdict == "same"
    assert "momentum was not compared: dropout's masks hide it" in found.reason


@pytest.mark.parametrize(("network", "seed"), [("tiny_dropout", 5), ("tiny_inception", 5), ("tiny_inception", 9)])
def test_masks_that_drop_most_of_a_small_layer_refuse_no_honest_runner(worker_for, tmp_path, network, seed):
    """With these seeds layers stood still, and momentum was 1.2 % off behind other masks."""
    judge = Judge(tmp_path, samples=2, steps=2, seed=seed, limit=600)
    with worker_for("reference", "", {}) as worker:
        found = judge.judge(worker, networks.get(network), TASK)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.trajectory_error < 1e-3


@pytest.mark.parametrize("seed", [3, 7, 25])
def test_masks_are_expected_to_leave_the_norms_that_they_leave(worker_for, tmp_path, monkeypatch, seed):
    """With these seeds a norm was 3.5 times its limit off, from neighbouring runs alone."""
    monkeypatch.setattr("harness.proof.judge.DRAWS", 1)
    judge = Judge(tmp_path, samples=2, steps=2, seed=seed, limit=600)
    with worker_for("reference", "", {}) as worker:
        found = judge.judge(worker, networks.get("tiny_dropout"), TASK, batch=64)
    assert (found.verdict, found.reason) == ("same", "")


def test_where_all_weights_are_zero_only_the_last_bias_is_read(worker_for, tmp_path, monkeypatch):
    read, train = [], plays.Trainer.train

    def noted(self, weights, start, steps, prefix="", compare=None):
        play = train(self, weights, start, steps, prefix, compare)
        with np.load(self.last) as found:
            read.append((compare.get("keep") or compare.get("from", "")[:1],
                         {name.partition("/shapes/")[2] for name in found if "/shapes/" in name}))
        return play

    monkeypatch.setattr(plays.Trainer, "train", noted)
    judge, network = Judge(tmp_path, samples=2, steps=2, seed=1, limit=600), networks.get("tiny_dropout")
    with worker_for("reference", "", {}) as worker:
        assert judge.judge(worker, network, TASK).verdict == "same"
    bias, every = {f"{network.layers[-1].name}.bias"}, set(network.parameter_shapes)
    assert read == [("plain", every), ("", every), ("", every), ("zero", bias), (("zero",), bias)]
