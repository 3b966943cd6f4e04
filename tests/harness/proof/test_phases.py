"""Faults of every second step or batch, or of some rows: proofs begin elsewhere, and draw the order of rows."""

import pytest

import networks
from tests.conftest import TASK


@pytest.fixture
def proven(judge, worker_for):
    """Return the verdict on a fault after so many steps: `proven("tiny_fcn", "Nan", 24)`."""

    def ask(name, fault, between, turned=False):
        with worker_for("reference", fault, TASK) as worker:
            return judge.judge(worker, networks.get(name), TASK, 4, between, turned)

    return ask


@pytest.mark.parametrize(("fault", "between", "turned"), [
    ("HeadAloneEvery2", 25, False), ("HeadAloneEvery2", 24, True), ("HeadAloneOnBatch2", 24, True)])
def test_steps_that_train_the_last_layer_alone_are_refused(proven, fault, between, turned):
    assert proven("tiny_fcn", fault, 24).verdict == "same"
    found = proven("tiny_fcn", fault, between, turned)
    assert found.verdict == "different"
    assert found.reason.startswith("6 of 8 tensors did not move, from the loss backwards first dense3.bias")


def test_another_draw_does_not_clear_a_fault_of_every_second_step(proven):
    """A turned proof has an odd number of steps, so the next draw would begin at an even one."""
    found = proven("tiny_resnet", "TracksEvery2", 24, turned=True)
    assert found.verdict == "different"
    assert found.reason.startswith("14 running statistics differ, first batch_norm1.mean (it did not move)")


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_resnet", "tiny_dropout", "tiny_lstm", "tiny_gpt"])
def test_a_turned_ring_is_no_fault(proven, name):
    found = proven(name, "", 3, turned=True)
    assert (found.verdict, found.reason) == ("same", "")


@pytest.mark.parametrize("fault", ["MiddleHalf", "LabelsTwoAway"])
def test_rows_in_a_drawn_order_show_a_fault_that_blocks_and_turns_hide(fault, judge, worker_for):
    network = networks.get("tiny_cnn")
    with worker_for("reference", fault, TASK) as worker:
        found = judge.judge(worker, network, TASK, 32)
    assert found.verdict == "different"
    # The calibrated play, whose limit is the same in every precision.
    assert "moved" in found.reason and "as far as it must" in found.reason
