"""Several devices train what one device with the whole batch trains; whatever aggregates otherwise is different and named."""

import math
import re

import pytest

import networks

SMALL = [name for name in networks.names(small=True) if name.startswith("tiny_")]


def worded(reason):
    """A reason with # for the numbers that the draw of weights decides."""
    return re.sub(r"\b(loss|for|error|allowed) \d+\.[\de.-]+", r"\1 #", reason)


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("devices", [2, 3])
def test_ranks_are_the_same_as_one_device_or_with_batch_norm_as_shards(verdict, network, devices):
    found = verdict("reference", network, fault="ranks:Runner", devices=devices)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-12
    assert found.trajectory_error < 1e-6  # parameters travel as float32


@pytest.mark.parametrize(("network", "fault", "reason"), [
    ("tiny_fcn", "Sum", "8 of 8 gradients differ, from the loss backwards first dense4.bias (dense, relative error 1, allowed #): "
                        "they are 2 times too large, the sum over 2 devices instead of the mean"),
    ("tiny_fcn", "Stale", "the devices' parameters have come apart: device 1 of 2 holds others than the rest"),
    ("tiny_fcn", "SameRows", "loss # for #; 8 of 8 gradients differ, from the loss backwards first dense4.bias "
                              "(dense, relative error #, allowed #)"),
])
def test_a_fault_of_aggregation_is_different_and_named(verdict, network, fault, reason):
    found = verdict("reference", network, fault=f"ranks:{fault}", devices=2)
    assert (found.verdict, worded(found.reason)) == ("different", reason)


def test_copies_of_a_controller_that_differ_by_one_unit_in_the_last_place_are_the_same_and_the_share_is_told(verdict):
    found = verdict("reference", "tiny_lstm", fault="controllers:Rounds", devices=2)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.copies_error == pytest.approx(3.3e-4, rel=0.01)  # three steps change some weights by 2000 units only


def test_copies_of_a_controller_that_differ_by_a_ten_thousandth_of_the_change_are_refused(verdict):
    found = verdict("reference", "tiny_fcn", fault="controllers:Off", devices=2)
    assert found.verdict == "different"
    assert found.reason == ("the devices' parameters have come apart: device 1 of 2 holds others than the rest; parameters that "
                            "differ: 8, most of all dense4.bias, by 0.0001 of what training changed (allowed 1e-05)")
    assert found.copies_error == pytest.approx(1e-4, rel=0.1)


def test_equal_copies_leave_the_error_empty(verdict):
    found = verdict("reference", "tiny_fcn", fault="controllers:StaleLate", devices=2)
    assert (found.verdict, math.isnan(found.copies_error)) == ("same", True)


def test_one_copy_for_two_devices_is_not_believed(verdict):
    found = verdict("reference", "tiny_fcn", fault="ranks:NoCopies", devices=2)
    assert (found.verdict, found.reason) == ("different", "0 copies of the parameters were answered for 2 devices")


@pytest.mark.parametrize(("network", "tuning"), [("tiny_fcn", "stock"), ("tiny_resnet", "stock"), ("tiny_resnet", "tuned")])
def test_pytorch_on_two_ranks_is_the_same(verdict, network, tuning):
    found = verdict("pytorch", network, devices=2, strategy="ddp", tuning=tuning)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize(("fault", "reason"), [
    ("Sum", "they are 2 times too large, the sum over 2 devices instead of the mean"),
    ("Stale", "the devices' parameters have come apart: device 1 of 2 holds others than the rest"),
    ("OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
])
def test_faults_planted_in_pytorchs_own_aggregation_are_named(verdict, fault, reason):
    found = verdict("pytorch", "tiny_fcn", fault=f"pytorch_ranks:{fault}", devices=2, strategy="ddp")
    assert found.verdict == "different"
    assert reason in found.reason
