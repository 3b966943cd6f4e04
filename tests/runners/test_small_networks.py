"""Every framework trains the reference's networks."""

import pytest

import networks

# What a framework lacks, and the network whose layers ask for it.
LACKS = {(framework, network): "this runner has no operation"
         for framework in ("cntk", "caffe") for network in ("tiny_gpt", "tiny_vit")}
SMALL = [name for name in networks.names(small=True) if name.startswith("tiny_")]


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax", "paddle", "mxnet", "cntk", "caffe"])
def test_a_small_network_is_the_same_or_unsupported_with_its_reason(verdict, monkeypatch, framework, network):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = verdict(framework, network)
    if lacks := LACKS.get((framework, network)):
        assert found.verdict == "unsupported" and lacks in found.reason
        return
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == networks.get(network).parameter_count
    if not networks.get(network).has_dropout:  # else frameworks draw other masks
        assert found.gradient_error < 1e-4
