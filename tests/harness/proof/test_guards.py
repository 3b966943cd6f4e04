"""Each comparison of a proof refuses a fault that the others let pass."""

import math
import re

import pytest

from harness.proof import moves
from harness.proof.distances import Errors
from harness.proof.limits import Allowed, Limits
from harness.proof.questions import PLAIN
from harness.proof.verdict import Findings

ONE_OF_8 = r"1 of 8 gradients differ, .* dense2.weight \(dense, "
DIFFER = "running statistics differ, first batch_norm1."


@pytest.fixture(autouse=True)
def one_draw(monkeypatch):
    monkeypatch.setattr("harness.proof.judge.DRAWS", 1)


@pytest.mark.parametrize(("network", "fault", "reason"), [
    ("tiny_fcn", "TwiceTheLoss", r"loss \S+ for \S+ where all logits are zero; loss \S+ for \S+"),
    ("tiny_dropout", "TwiceTheLoss",
     r"loss \S+ for \S+ where all logits are zero; loss \S+ for \S+"),
    ("tiny_fcn", "Across", ONE_OF_8 + "its norm is 1.005 times the right one, allowed .*"),
    ("tiny_fcn", "AcrossLittle", ONE_OF_8 + "relative error 0.01, allowed .*"),
    ("tiny_fcn", "AcrossHead", r"dense4.bias moved 1 times as far as it must \(allowed .*\), but "
                               r"not in its direction: the batch or the loss is another one; .*"),
    ("tiny_fcn", "HeadReads", r"dense4.weight moved 1.05 times as far as it must \(allowed .*\): "
                              r"what its layer reads is not what the network gives; .*"),
    ("tiny_dropout", "SameMasks", r"dropout's masks change nothing in conv2d1.weight: none, or .*"),
    ("tiny_dropout", "training:reference.Dropout90",
     r".*; dropout's masks make 7\.\d times the variance that they must \(allowed .*"),
])
def test_a_fault_is_refused_by_the_comparison_that_sees_it(verdict, network, fault, reason):
    found = verdict("reference", network, fault=fault)
    assert found.verdict == "different" and re.fullmatch(reason, found.reason), found.reason


@pytest.mark.parametrize(("fault", "reason"), [
    ("Deviation", f"7 {DIFFER}variance (# times the right one, allowed # to #)"),
    ("training:reference.Running99", f"14 {DIFFER}mean (# times the right one, allowed # to #)"),
    ("training:reference.Running100", f"14 {DIFFER}mean (it did not move)"),
    ("NoMean", f"7 {DIFFER}mean (no running statistic was answered)"),
    ("Untold", f"14 {DIFFER}mean (no running statistic was answered)"),
    ("NanVariance", f"1 {DIFFER}variance (no running statistic was answered)"),
])
def test_other_or_missing_running_statistics_are_refused(verdict, fault, reason):
    found = verdict("reference", "tiny_resnet", fault=fault)
    worded = re.sub(r"-?\b\d+\.\d+(e-\d+)?", "#", found.reason)
    assert (found.verdict, worded) == ("different", reason)


@pytest.mark.parametrize(("fault", "remark"), [
    ("Unbiased", ""),
    ("Hidden", "running statistics were not compared: the framework keeps them to itself"),
])
def test_either_variance_is_the_same_and_a_framework_that_hides_them_is_said(verdict, fault,
                                                                             remark):
    found = verdict("reference", "tiny_resnet", fault=fault)
    assert (found.verdict, found.reason) == ("same", remark)


def test_weights_away_from_kinks_show_what_kinks_hide_at_the_drawn_ones(verdict, judge,
                                                                        monkeypatch):
    of = judge.limits.of

    def wide(question, kind, precision) -> Limits:
        found = of(question, kind, precision)
        return found if kind != PLAIN else Limits(
            found.loss, {**found.tensors, "conv2d1.weight": Allowed(1, 1, 1)})

    monkeypatch.setattr(judge.limits, "of", wide)
    found = verdict("reference", "tiny_resnet", fault="KinkFirst")
    assert found.verdict == "different"
    assert found.reason.startswith("1 of 23 gradients differ, from the loss backwards first "
                                   "conv2d1.weight (conv2d, 1.005 times the right one")


@pytest.mark.parametrize(("limit", "distance", "words"), [
    (moves.CANCELS, math.inf, ""),
    (moves.CANCELS, math.nan, "not a number"),
    (0.9 * moves.CANCELS, math.inf, "inf times the right one, allowed -8 to 10"),
])
def test_a_gradient_that_cancels_but_for_rounding_is_refused_only_as_no_number(limit, distance,
                                                                               words):
    """A shift before a convolution and batch norm has none, and bf16 makes it any size."""
    error = Errors(distance, distance, distance)
    assert moves._beyond(Findings(), error, Allowed(limit, limit, limit)) == words
