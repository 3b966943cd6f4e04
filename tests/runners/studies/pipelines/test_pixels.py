"""The references for pixels, against Pillow's and by hand, and what the comparisons find."""

import numpy as np
import pytest
from PIL import Image

from runners.studies.pipelines import pixels

FRAMES = np.random.default_rng(0).integers(256, size=(6, 24, 36, 3)).astype(np.uint8)


@pytest.mark.parametrize("size", [(8, 9), (24, 36), (50, 40)])
def test_a_triangle_is_pillow_s_bilinear_filter_without_rounding(size):
    found = pixels.resized(FRAMES, size, "triangle")
    for channel in range(3):
        image = Image.fromarray(FRAMES[0, ..., channel].astype(np.float32))
        wanted = np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))
        np.testing.assert_allclose(found[0, ..., channel], wanted, atol=1e-3)


def test_an_area_is_the_mean_of_what_a_pixel_covers_and_two_taps_are_bilinear():
    frames = np.arange(8.0).reshape(1, 1, 8, 1)
    assert pixels.resized(frames, (1, 2), "area").ravel().tolist() == [1.5, 5.5]
    assert pixels.resized(frames, (1, 2), "bilinear").ravel().tolist() == [1.5, 5.5]
    assert pixels.resized(frames, (1, 3), "area").ravel() == pytest.approx([7 / 8, 3.5, 49 / 8])
    assert pixels.resized(frames**2, (1, 2), "area").ravel().tolist() == [3.5, 31.5]
    assert pixels.resized(frames**2, (1, 2), "bilinear").ravel().tolist() == [2.5, 30.5]
    assert pixels.resized(frames, (1, 16), "bilinear").ravel()[:4].tolist() == [0, 0.25, 0.75, 1.25]


def test_a_triangle_may_repeat_the_edge_instead_of_ending_there():
    frames = np.array([8.0, 0, 0, 0, 0, 0, 0, 0]).reshape(1, 1, 8, 1)
    # Pixels lie 1.5, 0.5, 0.5, 1.5, 2.5 and 3.5 from the new pixel's centre; at 4 their weight is 0.
    assert pixels.resized(frames, (1, 2), "triangle")[0, 0, 0, 0] == pytest.approx(8 * 2.5 / 14)
    assert pixels.resized(frames, (1, 2), "triangle_repeated")[0, 0, 0, 0] == pytest.approx(8 * 4.5 / 16)
    flat = np.full((1, 8, 8, 3), 7.0)
    np.testing.assert_allclose(pixels.resized(flat, (3, 2), "triangle_repeated"), 7.0)


def test_filters_agree_where_nothing_is_resized():
    for name in pixels.FILTERS:
        np.testing.assert_allclose(pixels.resized(FRAMES, FRAMES.shape[1:3], name), FRAMES, atol=1e-9)


def test_normalising_scales_to_one_and_takes_z_scores():
    frames = np.full((1, 1, 1, 3), 255.0)
    assert pixels.normalised(frames, [0.5, 0.0, 1.0], [0.5, 0.25, 1.0]).ravel().tolist() == [1.0, 4.0, 0.0]


@pytest.mark.parametrize(("change", "facts"), [
    (lambda frames: frames, {"frames": 6, "place": -1, "nearest": -1, "mean": 0.0, "max": 0.0}),
    (lambda frames: frames[[0, 1, 3, 4, 5, 5]], {"frames": 6, "place": 2, "nearest": 3}),
    (lambda frames: frames[[1, 0, 2, 3, 4, 5]], {"place": 0, "nearest": 1}),
    (lambda frames: frames[:4], {"frames": 4, "place": -1}),
    (lambda frames: frames[[0, 1, 2, 3, 4, 5, 5]], {"frames": 7, "place": -1}),
    (lambda frames: frames[..., ::-1], {"swapped": 0.0}),
    (lambda frames: frames // 2 * 2, {"place": -1, "max": 1.0}),
])
def test_lost_exchanged_and_changed_frames_are_found(change, facts):
    found = pixels.compare_decoded(change(FRAMES), FRAMES)
    assert {name: found[name] for name in facts} == facts
    assert ("mean" in found) == (found["frames"] == 6)


def test_the_worst_frame_counts():
    changed = FRAMES.astype(np.float64)
    changed[3] += 2.0
    assert pixels.levels_apart(changed, FRAMES) == (2.0, 2.0)


def test_another_filter_and_a_second_normalising_are_told_apart():
    area = pixels.resized(FRAMES, (8, 12), "area")
    found = pixels.compare_resized(area, FRAMES, (8, 12), "triangle")
    assert found["area"] == 0.0 and found["mean"] == found["triangle"] > 1.0 < found["bilinear"]
    mean, deviation = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    once = pixels.normalised(area, mean, deviation)
    twice = pixels.normalised(once.transpose(0, 2, 3, 1), mean, deviation)
    assert pixels.compare_normalised(once, area, mean, deviation)["mean"] == 0.0
    assert pixels.compare_normalised(twice, area, mean, deviation)["twice"] == 0.0
