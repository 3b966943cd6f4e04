"""A set of JPEG images in one archive: its parts, its labels, and the networks that it may feed."""

import sys

import numpy as np
import pytest

import networks
from harness.data import data_sets, divided, formats
from harness.errors import WrongUse
from harness.studies import media


def test_both_parts_are_read_in_the_order_of_their_paths_with_labels_by_class(archive):
    training, test = (data_sets.part("cifar10-jpeg", number) for number in (0, 1))
    assert training.images[1].tolist() == 4 * [0] + 4 * [1] + 4 * [2] and test.images[1].tolist() == [0, 0, 1, 1, 2, 2]
    assert training.images[0].shape == (12, 3, 32, 32) and training.images[0].dtype == np.uint8
    means = training.images[0].mean(axis=(1, 2, 3))
    assert np.abs(means - [100 * label + number for label in range(3) for number in range(4)]).max() <= 1
    assert training.text == "Pictures, 12 images of images.tar.xz"


def test_it_stands_for_the_set_of_a_network_and_for_no_other(archive):
    assert data_sets.feeds("cifar10-jpeg", networks.get("resnet56"))
    assert not data_sets.feeds("cifar10-jpeg", networks.get("fcn5"))
    parts = divided.divide("cifar10-jpeg", networks.get("resnet56"))
    inputs, labels = parts.test_part
    assert inputs.shape == (6, 3, 32, 32) and labels.tolist() == [0, 0, 1, 1, 2, 2]
    wanted = (100 / 255 - formats.CIFAR_MEAN) / formats.CIFAR_DEVIATION
    assert np.allclose(inputs[2, :, 0, 0], wanted, atol=0.02)


def test_augmented_numbers_are_those_of_the_network_and_black_borders(archive):
    parts = divided.divide("cifar10-jpeg", networks.get("resnet56"))
    plain, found = (parts.epoch(6, seed=1, number=1, augment=augment) for augment in (False, True))
    black = -formats.CIFAR_MEAN / formats.CIFAR_DEVIATION
    centre = found["inputs_channels_last"][:, :, 16, 16]
    assert np.array_equal(centre, plain["inputs"][..., 16, 16])
    edges = found["inputs_channels_last"][:, :, [0, -1]][..., [0, -1], :]
    known = np.isclose(edges, black, atol=1e-6).all(-1) | np.isclose(edges, centre[:, :, None, None], atol=0.05).all(-1)
    assert known.all() and not np.isclose(edges, centre[:, :, None, None], atol=0.05).all()


def test_an_archive_that_nobody_publishes_is_not_fetched(archive):
    archive.unlink()
    with pytest.raises(WrongUse, match=r"images.tar.xz: nobody publishes this archive; put it there \(SHA-256"):
        data_sets.fetch("cifar10-jpeg")


def test_a_machine_without_pillow_is_told_what_to_install(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(WrongUse, match=r"decoded by Pillow, which is not installed: run .* -m pip install -e '\.\[images\]'"):
        data_sets.part("cifar10-jpeg", 0)


def test_its_files_are_spread_over_all_classes_and_too_many_are_refused(archive, tmp_path):
    files = media.write("cifar10-jpeg", tmp_path / "files", 3, (0, 0))
    assert media.decoded(files).mean(axis=(1, 2, 3)).round().tolist() == [0, 100, 200]
    with pytest.raises(WrongUse, match="--frames 7: cifar10-jpeg has 6 test images"):
        media.write("cifar10-jpeg", tmp_path / "more", 7, (0, 0))
