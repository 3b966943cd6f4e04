"""The proof refuses Transformers that differ in one convention, each with a reason."""

import pytest

NORM = "layer_norm5.scale moved "


@pytest.mark.parametrize(("network", "fault", "precision", "reason"), [
    ("tiny_gpt", "Exact", "fp32", "gradients differ, from the loss backwards first dense7"),
    ("tiny_vit", "Tanh", "fp32", "gradients differ, from the loss backwards first dense8"),
    ("tiny_gpt", "Epsilon6", "fp32", NORM),
    ("tiny_vit", "Epsilon5", "fp32", "loss "),
    ("tiny_gpt", "Epsilon3", "bf16", NORM),
    ("tiny_gpt", "NoScale", "fp32", NORM),
    ("tiny_vit", "NoScale", "bf16", "dense9.weight moved 0."),
    ("tiny_gpt", "NextWord", "fp32", NORM),
    ("tiny_gpt", "NextWord", "bf16", NORM),
    ("tiny_gpt", "DroppedHead", "fp32", NORM),
    ("tiny_vit", "DroppedHead", "bf16", "dense9.weight moved "),
    ("tiny_gpt", "Untied", "fp32",
     "different: trained parameters that the network has not: parts.tied_dense1.weight"),
    ("tiny_gpt", "StaleHead", "fp32", "layer_norm5.shift moved "),
    ("tiny_gpt", "HeadApart", "fp32", "embedding1.weight (embedding, "),
])
def test_another_convention_of_a_transformer_is_different(verdict, network, fault, precision,
                                                          reason):
    found = verdict("pytorch", network, fault=f"pytorch.transformers:{fault}", precision=precision)
    assert found.verdict == "different" and reason in found.reason


@pytest.mark.parametrize(("network", "fault"), [("tiny_gpt", "Tanh"), ("tiny_vit", "Exact"),
                                                ("tiny_gpt", "Epsilon5"), ("tiny_vit", "Epsilon6")])
def test_a_layer_planted_with_the_right_convention_is_the_same(verdict, network, fault):
    assert verdict("pytorch", network, fault=f"pytorch.transformers:{fault}").verdict == "same"


def test_a_head_that_is_another_table_shows_in_the_table_alone(verdict):
    found = verdict("pytorch", "tiny_gpt", fault="pytorch.transformers:HeadApart")
    assert found.reason.startswith("1 of 28 gradients differ, ")
