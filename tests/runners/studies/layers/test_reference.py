"""The reference of the layers study agrees with finite differences of itself, and with counted examples."""

import numpy as np
import pytest

from runners.studies.layers import reference

POOL = {"channels": 2, "size": 7, "kernel": 3, "stride": 2}
SIZES = {
    "conv1d": {"channels": 3, "size": 6, "kernel": 3}, "conv3d": {"channels": 2, "size": 4, "kernel": 3},
    "max_pool": POOL, "avg_pool": POOL, "lp_pool": POOL, "lrn": {"channels": 7, "size": 3},
    "softmax": {"channels": 5}, "batch_norm": {"channels": 3, "size": 4}, "ctc": {"size": 7, "classes": 4, "labels": 3},
    "embedding": {"channels": 4, "size": 5, "classes": 6}, "hierarchical_softmax": {"channels": 4, "classes": 9},
}


@pytest.mark.parametrize("layer", SIZES)
def test_gradients_are_those_of_finite_differences(layer):
    point = {"layer": layer, "precision": "fp32", **SIZES[layer]}
    inputs = {name: array if array.dtype == np.int32 else array.astype(float) for name, array in reference.draw(point, 2).items()}
    upstream = reference.draw_upstream(point, reference.output_shape(point, inputs)).astype(float)
    output, gradients = reference.exact(point, inputs, upstream)
    assert output.shape == upstream.shape
    assert set(gradients) == {name for name, array in inputs.items() if array.dtype != np.int32}
    generator = np.random.default_rng(2)
    for name, gradient in gradients.items():
        for _ in range(4):
            direction = generator.standard_normal(gradient.shape)
            moved = ({**inputs, name: inputs[name] + sign * 1e-6 * direction} for sign in (1, -1))
            ends = [reference.exact(point, each, upstream)[0] for each in moved]
            slope = ((ends[0] - ends[1]) * upstream).sum() / 2e-6
            assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_every_layer_is_tried():
    assert set(SIZES) | {"dropout"} == set(reference.EXACT) == set(reference.INPUTS)


def test_ctc_of_two_steps_is_the_sum_over_its_paths():
    logits = np.log(np.array([[[0.2, 0.8]], [[0.4, 0.6]]]))  # (T, B, K); one label: paths "1 1", "blank 1", "1 blank"
    loss, _ = reference.exact({"layer": "ctc"}, {"x": logits, "labels": np.array([[1]], np.int32)}, np.ones(1))
    assert loss[0] == pytest.approx(-np.log(0.8 * 0.6 + 0.2 * 0.6 + 0.8 * 0.4))


def test_dropout_follows_the_framework_s_choice_and_refuses_a_wrong_rate():
    point = {"layer": "dropout", "precision": "fp32", "channels": 4000, "rate": 0.5}
    x = reference.draw(point, 1)["x"].astype(float)
    kept = np.random.default_rng(0).random(x.shape) < 0.5
    output, gradients = reference.exact(point, {"x": x}, np.ones(x.shape), x * kept / 0.5)
    assert np.array_equal(output, x * kept * 2) and np.array_equal(gradients["x"], kept * 2.0)
    assert np.isnan(reference.exact(point, {"x": x}, np.ones(x.shape), x)[0]).all()


def test_windows_of_pooling_hold_no_two_equal_values_even_in_fp16():
    x = reference.draw({"layer": "max_pool", "precision": "fp16", "channels": 2, "size": 13}, 2)["x"]
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3)).reshape(-1, 9)
    assert all(len(set(window)) == 9 for window in windows.tolist())
