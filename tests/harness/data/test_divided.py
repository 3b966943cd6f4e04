"""Parts to train on and to test."""

import numpy as np
import pytest

import networks
from harness.data import data_sets, divided


@pytest.fixture
def shipped(monkeypatch):
    monkeypatch.delenv("DLBENCH_DATA", raising=False)
    return divided.divide("mnist", networks.get("fcn5"))


def test_the_shipped_digits_give_a_fifth_of_each_class_to_test(shipped):
    (images, _), (test_images, _) = shipped.training.images, shipped.test.images
    inputs, labels = shipped.test_part
    assert len(images) == shipped.count == 4000 and inputs.shape == (1000, 784)
    assert np.bincount(labels).tolist() == 10 * [100]
    assert inputs.min() >= 0 and inputs.max() == 1 and (np.diff(inputs.mean(axis=1)) > -1e-6).all()
    both = {image.tobytes() for image in images} & {image.tobytes() for image in test_images}
    assert both == set()
    assert shipped.text.endswith(": 4,000 to train, 1,000 of all classes to test")


def test_an_epoch_has_whole_batches_of_other_samples_in_an_order_of_its_seed(shipped):
    inputs, labels = shipped.epoch(300, seed=1, number=2).values()
    assert inputs.shape == (13, 300, 784) and labels.shape == (13, 300)
    again = shipped.epoch(300, seed=1, number=2)["inputs"]
    assert np.array_equal(inputs, again)
    for seed, number in ((2, 2), (1, 3)):
        assert not np.array_equal(labels, shipped.epoch(300, seed, number)["targets"])
    whole = shipped.epoch(100, seed=1, number=1)["inputs"]
    assert np.allclose(np.sort(whole.reshape(4000, -1).sum(axis=1)), np.sort((shipped.training.images[0].reshape(4000, -1) / np.float32(255)).sum(axis=1)),
                       rtol=1e-5)


def test_the_publishers_test_part_is_tested_where_it_is_here(monkeypatch):
    parts = {0: data_sets.Read((np.zeros((50, 1, 28, 28), np.uint8), np.arange(50) % 10), "a"),
             1: data_sets.Read((np.ones((100, 1, 28, 28), np.uint8), np.arange(100) % 10), "b")}
    monkeypatch.setattr(data_sets, "part", lambda name, number: parts[number])
    found = divided.divide("mnist", networks.get("fcn5"))
    assert (found.count, len(found.test_part[0]), found.text) == (50, 100, "a to train, b to test")
    parts[0] = None
    assert divided.divide("mnist", networks.get("fcn5")).text == "b: 80 to train, 20 of all classes to test"


def test_augmented_images_are_mirrored_or_not_and_cropped_with_black_around(shipped):
    """Each is a window of its padded image, as another way to cut it finds; labels stay with their images."""
    network = networks.get("lenet5")
    parts = divided.divide("mnist", network)
    plain, found = (parts.epoch(500, seed=3, number=1, augment=augment) for augment in (False, True))
    assert np.array_equal(plain["targets"], found["targets"])
    again = parts.epoch(500, seed=3, number=1, augment=True)
    assert np.array_equal(again["inputs_channels_last"], found["inputs_channels_last"])
    crops = found["inputs_channels_last"][..., 0].reshape(-1, 28, 28)
    seen = set()
    for image, crop in zip(plain["inputs"].reshape(-1, 28, 28)[:300], crops, strict=False):
        room = np.pad(image, 4)
        ways = [(down, right, side) for down in range(9) for right in range(9) for side in (1, -1)
                if np.array_equal(room[down:down + 28, right:right + 28][:, ::side], crop)]
        assert ways
        seen |= set(ways[:1])
    assert {side for *_, side in seen} == {1, -1} and len(seen) > 100
