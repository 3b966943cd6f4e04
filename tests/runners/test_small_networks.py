"""Every framework trains the reference's networks."""

import pytest

import networks
from tests.slow import slow_where

# What a framework lacks, by the network whose layers ask for it.
NO_PRODUCT = ("attention: no layer of Caffe 1.0 multiplies two blobs; its InnerProduct multiplies by "
              "parameters alone")
LACKS = {("caffe", "tiny_gpt"): NO_PRODUCT, ("caffe", "tiny_vit"): NO_PRODUCT,
         ("caffe", "tiny_llama"): NO_PRODUCT}
COMPILED = ("tensorflow", "jax")  # which takes some seconds a network
QUICK = ("tiny_fcn", "tiny_cnn", "tiny_lstm", "tiny_gpt", "tiny_llama")
SMALL = [name for name in networks.names(small=True) if name.startswith("tiny_")]


@pytest.mark.parametrize(("framework", "network"), slow_where(
    lambda row: row[0] in COMPILED and row[1] not in QUICK,
    [(framework, network) for network in SMALL
     for framework in ("pytorch", "tensorflow", "jax", "paddle", "mxnet", "cntk", "caffe")]))
def test_a_small_network_is_the_same_or_unsupported_with_its_reason(verdict, monkeypatch, framework, network):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = verdict(framework, network)
    if lacks := LACKS.get((framework, network)):
        assert (found.verdict, found.reason) == ("unsupported", lacks)
        return
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == networks.get(network).parameter_count
    if not networks.get(network).has_dropout:  # else frameworks draw other masks
        assert found.gradient_error < 1e-4
