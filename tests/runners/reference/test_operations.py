"""The reference's operations one by one, and its loss, against definitions written as loops or worked out by hand."""

import numpy as np
import pytest

from runners.reference import operations as reference


@pytest.mark.parametrize(("kernel", "stride", "padding", "bias", "groups"), [
    (3, 1, 1, True, 1), (5, 2, 2, False, 1), (1, 2, 0, True, 1), (1, 1, 0, False, 1), (3, 1, 1, True, 2), (5, 2, 2, False, 4)])
def test_a_convolution_is_the_sum_of_its_windows(kernel, stride, padding, bias, groups):
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(2, 4, 8, 7)), random.normal(size=(4, 4 // groups, kernel, kernel))
    shift = random.normal(size=4) if bias else np.zeros(4)
    a = {"filters": 4, "kernel": kernel, "stride": stride, "padding": padding, "bias": bias, "groups": groups}
    y, _ = reference.conv2d(a, {"weight": weight, "bias": shift} if bias else {"weight": weight}, x)
    framed = np.zeros((2, 4, 8 + 2 * padding, 7 + 2 * padding))
    framed[:, :, padding:padding + 8, padding:padding + 7] = x
    assert y.shape == (2, 4, (8 + 2 * padding - kernel) // stride + 1, (7 + 2 * padding - kernel) // stride + 1)
    for b, k, row, column in np.ndindex(y.shape):
        first = k * groups // 4 * (4 // groups)  # channel of the filter's group
        window = framed[b, first:first + 4 // groups, row * stride:row * stride + kernel, column * stride:column * stride + kernel]
        assert y[b, k, row, column] == pytest.approx((window * weight[k]).sum() + shift[k], abs=1e-12)


def test_max_pooling_pads_with_minus_infinity():
    x, a = -np.arange(1.0, 10.0).reshape(1, 1, 3, 3), {"kernel": 3, "stride": 2, "padding": 1, "ceil": False}
    y, saved = reference.max_pool(a, {}, x)
    assert y.tolist() == [[[[-1.0, -2.0], [-4.0, -5.0]]]]  # zeros in the frame would win everywhere
    dx, = reference.max_pool_backward(a, {}, saved, np.array([[[[1.0, 2.0], [3.0, 4.0]]]]))[0]
    assert dx.tolist() == [[[[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]]]


def test_max_pooling_gives_its_gradient_to_the_first_of_equals():
    a = {"kernel": 2, "stride": 2, "padding": 0, "ceil": False}
    y, saved = reference.max_pool(a, {}, np.ones((1, 1, 2, 2)))
    dx, = reference.max_pool_backward(a, {}, saved, np.full((1, 1, 1, 1), 5.0))[0]
    assert (y.tolist(), dx.tolist()) == ([[[[1.0]]]], [[[[5.0, 0.0], [0.0, 0.0]]]])


def test_pooling_drops_windows_that_do_not_fit_whole():
    x = np.arange(36.0).reshape(1, 1, 6, 6)
    a = {"kernel": 3, "stride": 2, "padding": 0, "ceil": False}
    assert reference.max_pool(a, {}, x)[0].tolist() == [[[[14.0, 16.0], [26.0, 28.0]]]]
    assert reference.avg_pool(a, {}, x)[0].tolist() == [[[[7.0, 9.0], [19.0, 21.0]]]]


def test_pooling_that_rounds_up_keeps_the_window_that_ends_beyond_the_image():
    a = {"kernel": 3, "stride": 2, "padding": 0, "ceil": True}
    y, saved = reference.max_pool(a, {}, -np.arange(36.0).reshape(1, 1, 6, 6))  # zeros beyond the image would win
    assert y.tolist() == [[[[0.0, -2.0, -4.0], [-12.0, -14.0, -16.0], [-24.0, -26.0, -28.0]]]]
    dx, = reference.max_pool_backward(a, {}, saved, np.arange(1.0, 10.0).reshape(1, 1, 3, 3))[0]
    assert dx.shape == (1, 1, 6, 6)
    assert dx[0, 0, ::2, ::2].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def test_local_response_normalisation_divides_alpha_by_the_size_and_sees_zeros_beyond_the_channels():
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    y, _ = reference.lrn({"size": 3, "alpha": 0.6, "beta": 0.75}, {}, x)
    squares = np.array([1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16])
    assert y.reshape(-1) == pytest.approx(np.array([1, 2, 3, 4]) / (1 + 0.2 * squares) ** 0.75, abs=1e-14)


def test_concatenation_lays_channels_behind_one_another():
    left, right = np.zeros((2, 1, 3, 3)), np.ones((2, 2, 3, 3))
    assert reference.concat({}, {}, left, right)[0][1, :, 2, 2].tolist() == [0.0, 1.0, 1.0]


def test_batch_norm_has_the_biased_variance_of_the_batch():
    x = np.array([1.0, 2.0, 3.0, 6.0]).reshape(2, 1, 2, 1)  # mean 3, biased variance 3.5
    y, _ = reference.batch_norm({"epsilon": 1e-5}, {"scale": np.array([2.0]), "shift": np.array([0.5])}, x)
    assert y.reshape(-1) == pytest.approx(2 * (np.array([1.0, 2.0, 3.0, 6.0]) - 3) / np.sqrt(3.5 + 1e-5) + 0.5, abs=1e-14)


def test_an_lstm_has_its_gates_in_the_order_i_f_g_o():
    random = np.random.default_rng(0)
    x, H = random.normal(size=(2, 3, 4)), 5
    shapes = {"weight_input": (4 * H, 4), "weight_hidden": (4 * H, H), "bias": (4 * H,)}
    w = {name: random.normal(size=shape) for name, shape in shapes.items()}
    y, _ = reference.lstm({"units": H}, w, x)
    for b in range(2):
        h, c = np.zeros(H), np.zeros(H)
        for t in range(3):
            z = w["weight_input"] @ x[b, t] + w["weight_hidden"] @ h + w["bias"]
            i, f, o = (1 / (1 + np.exp(-z[n * H:(n + 1) * H])) for n in (0, 1, 3))
            c = f * c + i * np.tanh(z[2 * H:3 * H])
            h = o * np.tanh(c)
            assert y[b, t] == pytest.approx(h, abs=1e-14)


def test_shortcut_a_keeps_every_second_pixel_and_appends_zero_channels():
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    kept, _ = reference.subsample({"stride": 2}, {}, x)
    padded, _ = reference.pad_channels({"extra": 1}, {}, kept)
    assert padded.tolist() == [[[[0.0, 2.0], [6.0, 8.0]], [[0.0, 0.0], [0.0, 0.0]]]]


def test_a_sigmoid_of_huge_values_is_zero_or_one():
    assert reference.sigmoid({}, {}, np.array([-1e4, 0.0, 1e4]))[0].tolist() == [0.0, 0.5, 1.0]


def test_dropout_scales_what_it_keeps_and_sends_gradients_the_same_way():
    a = {"rate": 0.25, "random": np.random.RandomState(0)}
    y, kept = reference.dropout(a, {}, np.ones((100, 100)))
    assert np.unique(y).tolist() == [0.0, 1 / 0.75]
    assert np.mean(y == 0) == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(reference.dropout_backward(a, {}, kept, np.ones((100, 100)))[0][0], y)


def test_the_loss_is_the_mean_softmax_cross_entropy_over_batch_and_words():
    logits, targets = np.random.default_rng(0).normal(size=(2, 3, 4)), np.array([[0, 3, 1], [2, 2, 0]])
    loss, gradient = reference.softmax_cross_entropy(logits, targets)
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert loss == pytest.approx(np.mean([-np.log(chances[b, t, targets[b, t]]) for b in range(2) for t in range(3)]), abs=1e-14)
    assert gradient == pytest.approx((chances - np.eye(4)[targets]) / 6, abs=1e-14)


def test_the_loss_of_huge_logits_is_finite():
    loss, gradient = reference.softmax_cross_entropy(np.array([[1e5, 0.0]]), np.array([1]))
    assert (loss, gradient.tolist()) == (1e5, [[1.0, -1.0]])
