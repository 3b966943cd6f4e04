"""The reference's operations of Transformers against definitions written as loops."""

import math

import numpy as np
import pytest

from runners.reference import transformers as reference


@pytest.mark.parametrize("causal", [True, False])
def test_each_head_of_attention_weighs_the_values_of_the_tokens_that_it_may_read(causal):
    B, T, H, D = 2, 5, 3, 4
    x = np.random.default_rng(0).normal(size=(B, T, 3 * H * D))
    y, _ = reference.attention({"heads": H, "causal": causal}, {}, x)
    q, k, v = (x[..., n * H * D:(n + 1) * H * D].reshape(B, T, H, D) for n in range(3))
    for b, t, h in np.ndindex(B, T, H):
        read = range(t + 1 if causal else T)
        weights = np.array([math.exp(q[b, t, h] @ k[b, s, h] / math.sqrt(D)) for s in read])
        wanted = sum(w * v[b, s, h] for w, s in zip(weights / weights.sum(), read, strict=True))
        assert y[b, t, h * D:(h + 1) * D] == pytest.approx(wanted, abs=1e-14)


def test_a_layer_norm_has_the_biased_variance_of_each_token():
    x = np.array([[[1.0, 2.0, 3.0, 6.0]]])  # mean 3, biased variance 3.5
    y, _ = reference.layer_norm({"epsilon": 1e-5}, {"scale": np.full(4, 2.0), "shift": np.full(4, 0.5)}, x)
    assert y[0, 0] == pytest.approx(2 * (x[0, 0] - 3) / np.sqrt(3.5 + 1e-5) + 0.5, abs=1e-14)


def test_gelu_has_two_forms_which_are_not_the_same():
    exact, tanh = (reference.gelu({"tanh": form}, {}, np.array([-1.0, 2.0]))[0] for form in (False, True))
    assert exact.tolist() == pytest.approx([-0.15865525393145707, 1.9544997361036416], abs=1e-15)
    assert tanh.tolist() == pytest.approx([-0.15880800939172324, 1.9545976940877752], abs=1e-15)


def test_tokens_are_pixels_row_by_row_behind_the_class_token():
    image = np.arange(8.0).reshape(1, 2, 2, 2)
    tokens, _ = reference.tokens({}, {}, image)
    y, _ = reference.class_token({}, {"weight": np.array([8.0, 9.0])}, tokens)
    assert y.tolist() == [[[8, 9], [0, 4], [1, 5], [2, 6], [3, 7]]]
    assert reference.first_token({}, {}, y)[0].tolist() == [[8, 9]]
