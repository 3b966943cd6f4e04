"""Every framework trains the reference's networks."""

import pytest

import networks

SMALL = [name for name in networks.names(small=True) if name.startswith("tiny_")]


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax", "paddle", "mxnet", "cntk", "caffe"])
def test_a_small_network_is_the_same(verdict, monkeypatch, framework, network):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = verdict(framework, network)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == networks.get(network).parameter_count
    if not networks.get(network).has_dropout:  # else frameworks draw other masks
        assert found.gradient_error < 1e-4
