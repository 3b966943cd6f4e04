"""Devices that divide a network train what one device trains with the global batch, or are refused."""

import math

import pytest

import networks
from analysis.strategies import dividing
from harness.proof.copies import undivided
from tests.slow import slow_but

ROWS = [("pytorch", strategy, network, precision) for strategy in dividing.STRATEGIES
        for network, precision in (("tiny_gpt", "fp32"), ("tiny_gpt", "bf16"), ("tiny_fcn", "fp32"))]
ROWS += [("jax", strategy, network, precision) for strategy in ("tensor", "fsdp")
         for network, precision in (("tiny_gpt", "fp32"), ("tiny_gpt", "bf16"), ("tiny_fcn", "fp32"))]
QUICK = [row for row in ROWS if row[2:] == ("tiny_gpt", "fp32")]


@pytest.mark.parametrize(("framework", "strategy", "network", "precision"), slow_but(QUICK, ROWS))
def test_a_divided_network_is_the_same(verdict, framework, strategy, network, precision):
    devices = 2 if network == "tiny_fcn" else 3
    found = verdict(framework, network, devices=devices, strategy=strategy, precision=precision)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.strength.frozen == 0
    if precision == "fp32":
        assert found.gradient_error < 1e-5


@pytest.mark.parametrize(("strategy", "fault", "network", "reason"), [
    ("tensor", "NotAllReduced", "tiny_fcn", "loss "),
    ("pipeline_gpipe", "SummedMicroBatches", "tiny_fcn", "moved 8 times as far as it must"),
    ("pipeline_1f1b", "SummedMicroBatches", "tiny_fcn", "moved 8 times as far as it must"),
    ("pipeline_gpipe", "TablesApart", "tiny_gpt", "embedding1.weight"),
    ("fsdp", "SkipsOneUpdate", "tiny_fcn", "another momentum"),
    ("fsdp", "HoldsAll", "tiny_fcn", "strategy fsdp: the devices divide 0 of 861 parameters"),
    ("fsdp", "SaysNothing", "tiny_fcn", "strategy fsdp: 0 of 2 devices say what they hold"),
])
def test_a_fault_of_a_divided_network_is_refused(verdict, strategy, fault, network, reason):
    found = verdict("pytorch", network, fault=f"pytorch.model_parallel:{fault}", devices=2,
                    strategy=strategy)
    assert found.verdict == "different"
    assert reason in found.reason


@pytest.mark.parametrize(("framework", "strategy", "network", "reason"), [
    ("pytorch", "tensor", "tiny_gpt", "layer attention1: 3 heads do not divide among 2 devices"),
    ("jax", "tensor", "tiny_gpt", "layer attention1: 3 heads do not divide among 2 devices"),
    ("pytorch", "fsdp", "tiny_resnet", "layer conv2d1: conv2d is not divided here"),
    ("jax", "fsdp", "tiny_resnet", "layer conv2d1: conv2d is not divided here"),
])
def test_what_cannot_be_divided_is_unsupported(verdict, framework, strategy, network, reason):
    found = verdict(framework, network, devices=2, strategy=strategy)
    assert found.verdict == "unsupported"
    assert reason in found.reason


def test_shards_that_leave_a_gap_or_lie_twice_are_no_division():
    network = networks.get("tiny_fcn")
    counts = {name: math.prod(shape) for name, shape in network.parameter_shapes.items()}
    assert undivided([counts, {}], network, 2) == ""
    assert "the devices divide 0 of" in undivided([counts, counts], network, 2)
    name, size = next(iter(counts.items()))
    less = {**counts, name: size - 1}
    assert undivided([less, {}], network, 2) == (
        f"the devices hold {size - 1:,} numbers of {name}, which has {size:,}")
