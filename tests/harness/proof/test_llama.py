"""The proof refuses Llamas that differ in one convention, each with a reason."""

import pytest

HEAD = "linear15.weight moved 0."


@pytest.mark.parametrize(("fault", "precision", "reason"), [
    ("LateKeys", "fp32", HEAD),
    ("LateKeys", "bf16", HEAD),
    ("Pairs", "fp32", HEAD),
    ("Pairs", "bf16", HEAD),
    ("Epsilon6", "fp32", "gradients differ, from the loss backwards first linear15.weight"),
    ("Epsilon3", "bf16", "gradients differ, from the loss backwards first linear15.weight"),
    ("NoScale", "fp32", HEAD),
    ("HeadOrder", "fp32", HEAD),
    ("HeadOrder", "bf16", HEAD),
    ("Gelu", "fp32", HEAD),
    ("Gelu", "bf16", HEAD),
])
def test_another_convention_of_a_llama_is_different(verdict, fault, precision, reason):
    found = verdict("pytorch", "tiny_llama", fault=f"pytorch.llama:{fault}", precision=precision)
    assert found.verdict == "different" and reason in found.reason


@pytest.mark.parametrize("fault", [
    "Silu",
    # Scores depend on the distance of two tokens, so this is the same function.
    "LateBoth",
])
def test_another_way_to_write_a_llama_is_the_same(verdict, fault):
    assert verdict("pytorch", "tiny_llama", fault=f"pytorch.llama:{fault}").verdict == "same"


def test_a_wrong_learning_rate_shows_in_a_head_without_a_bias(verdict):
    found = verdict("pytorch", "tiny_llama", plant=lambda network: network.update(learning_rate=0.105))
    assert found.verdict == "different" and "learning rate 0.105, not 0.1" in found.reason
