"""The reference of the attention study agrees with finite differences, and its operands are exact in every precision."""

import numpy as np
import pytest

from runners.studies.attention import reference


def operands(length=7, width=4):
    generator = np.random.default_rng(1)
    return [generator.standard_normal((length, width)) for _ in reference.OPERANDS]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [3, 256])
def test_gradients_are_those_of_finite_differences(causal, block, monkeypatch):
    monkeypatch.setattr(reference, "BLOCK", block)
    *inputs, upstream = operands()
    found = reference.exact(*inputs, upstream, causal)
    generator = np.random.default_rng(2)
    for place, name in enumerate(("dq", "dk", "dv")):
        direction = generator.standard_normal(inputs[place].shape)
        ends = []
        for sign in (1, -1):
            moved = [array + sign * 1e-6 * direction * (other == place) for other, array in enumerate(inputs)]
            ends.append((reference.exact(*moved, upstream, causal)["o"] * upstream).sum())
        assert (found[name] * direction).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_the_output_is_softmax_of_scaled_scores_times_values():
    q, k, v, do = operands()
    scores = q @ k.T / 2.0  # the root of D = 4
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(reference.exact(q, k, v, do, False)["o"], weights @ v)
    weights = np.tril(np.exp(scores))
    assert np.allclose(reference.exact(q, k, v, do, True)["o"], weights / weights.sum(1, keepdims=True) @ v)


def test_operands_have_bf16_s_bits_and_shorter_ones_begin_longer_ones():
    drawn = reference.draw(1, 1000)
    assert not (drawn.view(np.uint32) & 0xFFFF).any()
    assert np.abs(drawn.astype(np.float16).astype(np.float32) - drawn).max() < 1e-7
    assert 0.9 < drawn.std() < 1.1
    assert np.array_equal(reference.draw(1, 100), drawn[:100])
    assert not np.array_equal(reference.draw(2, 100), drawn[:100])


def test_the_first_and_the_last_head_are_compared_and_of_long_sequences_the_last():
    assert reference.checked_heads(2, 2048, 4) == [(0, 0), (1, 3)]
    assert reference.checked_heads(1, 8192, 4) == [(0, 3)]
    assert reference.checked_heads(1, 8, 1) == [(0, 0)]
