"""The reference's operations of Llama against definitions written as loops."""

import math

import numpy as np
import pytest

from runners.reference import llama as reference


def test_each_head_reads_the_head_of_keys_that_its_group_shares_and_no_later_token():
    B, T, H, G, D = 2, 4, 6, 2, 3
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(B, T, heads * D)) for heads in (H, G, G))
    y, _ = reference.grouped_attention({"heads": H, "groups": G, "causal": True}, {}, q, k, v)
    q, k, v = (part.reshape(B, T, -1, D) for part in (q, k, v))
    for b, t, h in np.ndindex(B, T, H):
        g = h // 3
        weights = np.array([math.exp(q[b, t, h] @ k[b, s, g] / math.sqrt(D)) for s in range(t + 1)])
        wanted = sum(w * v[b, s, g] for s, w in enumerate(weights / weights.sum()))
        assert y[b, t, h * D:(h + 1) * D] == pytest.approx(wanted, abs=1e-14)


def test_rotary_turns_features_i_and_i_plus_half_as_complex_numbers():
    B, T, H, D = 1, 5, 2, 4
    x = np.random.default_rng(1).normal(size=(B, T, H * D))
    y, _ = reference.rotary({"heads": H, "base": 100.0}, {}, x)
    x, y = (each.reshape(T, H, 2, D // 2) for each in (x, y))
    for t, h, i in np.ndindex(T, H, D // 2):
        turn = np.exp(1j * t * 100.0 ** (-2 * i / D))
        wanted = complex(*x[t, h, :, i]) * turn
        assert y[t, h, :, i] == pytest.approx([wanted.real, wanted.imag], abs=1e-14)


def test_scores_of_rotary_features_depend_on_how_far_tokens_are_apart():
    q, k = np.random.default_rng(2).normal(size=(2, 8))
    a = {"heads": 1, "base": 10000.0}
    queries, keys = (reference.rotary(a, {}, np.tile(each, (1, 6, 1)))[0][0] for each in (q, k))
    scores = queries @ keys.T
    for apart in (-1, -2, -3):
        assert np.diagonal(scores, apart) == pytest.approx(np.full(6 + apart, scores[-apart, 0]), abs=1e-13)
    assert abs(scores[2, 0] - scores[3, 0]) > 1e-3


def test_an_rms_norm_divides_by_the_root_of_the_mean_square_and_epsilon():
    x = np.array([[[1.0, 2.0, 3.0, 6.0]]])  # mean square 12.5
    y, _ = reference.rms_norm({"epsilon": 0.5}, {"scale": np.full(4, 2.0)}, x)
    assert y[0, 0] == pytest.approx(2 * x[0, 0] / math.sqrt(13), abs=1e-14)


def test_swiglu_is_the_gate_times_its_sigmoid_times_the_value():
    y, _ = reference.swiglu({}, {}, np.array([-1.0, 2.0]), np.array([3.0, 0.5]))
    assert y.tolist() == pytest.approx([-3 / (1 + math.e), 1 / (1 + math.exp(-2))], abs=1e-15)
