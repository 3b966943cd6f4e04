"""Several devices train what one device trains with the whole batch; else they are different.

A reason names how they aggregate.
"""

import math
import re

import pytest

import networks
from tests.slow import slow_where

SMALL = [name for name in networks.names(small=True) if name.startswith("tiny_")
         and not networks.get(name).has_dropout]
SUM = "the sum over 2 devices instead of the mean"
APART = "the devices' parameters have come apart: device 1 of 2 holds others than the rest"


def worded(reason):
    """A reason with # for the numbers that the draw of weights decides."""
    return re.sub(r"-?\b\d+\.\d+(e-\d+)?", "#", reason)


@pytest.mark.parametrize(("devices", "network"), slow_where(
    lambda row: row[0] == 2 and row[1] != "tiny_resnet",
    [(devices, network) for network in SMALL for devices in (2, 3)]))
def test_ranks_are_the_same_as_one_device_or_with_batch_norm_as_shards(verdict, network, devices):
    found = verdict("reference", network, fault="processes.ranks:Runner", devices=devices)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-6  # sums of two shards may round a weight otherwise
    assert found.trajectory_error < 1e-6


@pytest.mark.parametrize(("network", "fault", "reason"), [
    ("tiny_fcn", "Sum", "dense4.bias moved 2 times as far as it must (allowed # to #): " + SUM
     + "; 8 of 8 gradients differ, from the loss backwards first dense4.bias (dense, 2 times the "
       "right one, allowed # to #)"),
    ("tiny_fcn", "Stale", APART + "; parameters that differ: 8, most of all dense4.bias, by 1 of what training "
     "changed (allowed 1e-05)"),
    ("tiny_fcn", "SameRows", "loss # for #; 8 of 8 gradients differ, from the loss backwards first "
     "dense4.bias (dense, # times the right one, allowed # to #)"),
])
def test_a_fault_of_aggregation_is_different_and_named(verdict, network, fault, reason):
    found = verdict("reference", network, fault=f"processes.ranks:{fault}", devices=2)
    assert found.verdict == "different"
    assert worded(found.reason).endswith(reason)


@pytest.mark.parametrize("strategy", ["one_bit", "power_sgd"])
def test_ranks_under_a_strategy_that_may_round_are_the_same(verdict, strategy):
    found = verdict("reference", "tiny_fcn", fault="processes.ranks:Runner", devices=2, strategy=strategy)
    assert (found.verdict, found.reason) == ("same", "")
    rounds = strategy == "one_bit"
    assert (found.strength.rate, found.strength.frozen) == (0.05 if rounds else
                                                            pytest.approx(2.03e-4, rel=0.01), 0.0)


@pytest.mark.parametrize(("fault", "reason"), [
    ("Sum", "the first step adds up to 2 times the right one's sum in dense#.weight: " + SUM),
    ("OneFrozen", "1 tensors did not move, first dense1.bias"),
])
def test_of_a_strategy_that_keeps_only_sums_the_sums_are_compared(verdict, fault, reason):
    found = verdict("reference", "tiny_fcn", fault=f"processes.ranks:{fault}", devices=2, strategy="one_bit")
    assert found.verdict == "different"
    assert re.sub(r"dense\d.weight", "dense#.weight", found.reason) == reason


def test_steps_after_those_that_a_strategy_sends_whole_must_arrive_too(verdict):
    found = verdict("reference", "tiny_fcn", fault="processes.ranks:Unsent", devices=2, strategy="power_sgd")
    assert found.verdict == "different"
    assert re.sub(r"dense\d.\w+", "#", worded(found.reason)) == (
        "steps 3 to 8, whose gradients are not sent whole, have moved # otherwise (relative error "
        "1, allowed #, 1 if nothing arrived)")


def test_copies_of_a_controller_may_differ_by_one_unit_in_the_last_place(verdict):
    found = verdict("reference", "tiny_lstm", fault="processes.controllers:Rounds", devices=2)
    assert (found.verdict, found.reason) == ("same", "")
    # One step changes some weights by 600 units only.
    assert found.copies_error == pytest.approx(1.7e-3, rel=0.01)


def test_copies_of_a_controller_that_differ_by_a_ten_thousandth_of_the_change_are_refused(verdict):
    found = verdict("reference", "tiny_fcn", fault="processes.controllers:Off", devices=2)
    assert found.verdict == "different"
    assert found.reason == (
        f"{APART}; parameters that differ: 8, most of all dense4.bias, by 0.0001 of what training "
        "changed (allowed 1e-05)")
    assert 1e-4 < found.copies_error < 3e-4


def test_equal_copies_leave_the_error_empty(verdict):
    found = verdict("reference", "tiny_fcn", fault="processes.controllers:StaleLate", devices=2)
    assert (found.verdict, math.isnan(found.copies_error)) == ("same", True)


def test_one_copy_for_two_devices_is_not_believed(verdict):
    found = verdict("reference", "tiny_fcn", fault="processes.ranks:NoCopies", devices=2)
    assert (found.verdict, found.reason) == (
        "different", "0 copies of the parameters were answered for 2 devices")


def test_pytorch_on_two_ranks_is_the_same(verdict):
    """Its tests of strategies prove tiny_resnet, stock and tuned."""
    found = verdict("pytorch", "tiny_fcn", devices=2, strategy="ddp")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize(("fault", "reason"), [
    ("Sum", SUM),
    ("Stale", APART),
    ("OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
])
def test_faults_planted_in_pytorchs_own_aggregation_are_named(verdict, fault, reason):
    found = verdict("pytorch", "tiny_fcn", fault=f"pytorch.ranks:{fault}", devices=2,
                    strategy="ddp")
    assert found.verdict == "different"
    assert reason in found.reason
