"""Image files for loaders: published JPEG files as they are, PNG files of drawn samples, one order for all."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import networks
from harness.data import arrays, delivery, image_files


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """PNG files of 41 drawn samples."""
    monkeypatch.setattr(image_files, "MOST", 4 * 40)
    return image_files.write(tmp_path / "files", networks.get("lenet5"), 16, seed=1)


def batches_of(files, first, count, batch, change=lambda levels: levels):
    """What a loader without fault delivers, with a change of its levels."""
    for place in range(first, first + count * batch, batch):
        numbers = files.numbers(place, batch)
        levels = change(files.images[numbers].astype(np.float32)) / image_files.WHITE
        yield (levels - files.mean[:, None, None]) / files.deviation[:, None, None], files.labels[numbers]


def test_png_files_lose_nothing_of_the_drawn_samples(drawn):
    found = arrays.mapped(drawn.manifest)
    pixels = [np.array(Image.open(path)) for path in found["paths"].tolist()]
    assert np.array_equal(np.stack(pixels)[:, None], drawn.images) and len(pixels) == 41
    inputs, labels = arrays.synthetic_batches(networks.get("lenet5"), 41, 1, 1)
    assert np.array_equal(labels[0], drawn.labels)
    own = (drawn.images / 255 - drawn.mean) / drawn.deviation
    inside = abs(inputs[0]) < 3.9
    assert np.abs(own - inputs[0])[inside].max() < 0.51 / image_files.LEVELS_A_UNIT


def test_the_order_has_each_sample_once_an_epoch_and_begins_again(drawn):
    assert len(drawn.order) == 41 * image_files.EPOCHS
    assert (np.sort(drawn.order.reshape(-1, 41), axis=1) == np.arange(41)).all()
    assert not np.array_equal(drawn.numbers(0, 41), drawn.numbers(41, 41))
    assert np.array_equal(drawn.numbers(len(drawn.order) - 1, 2), drawn.order[[-1, 0]])


def test_jpeg_files_are_those_of_the_set_as_published(archive, tmp_path):
    network = networks.get("resnet56")
    assert image_files.source(network) == "resnet56: 8,191 JPEG files at most of Pictures, 12 images of images.tar.xz"
    files = image_files.write(tmp_path / "files", network, 4, seed=1)
    with tarfile.open(archive) as held:
        published = {held.extractfile(member).read() for member in held if "/train/" in member.name}
    paths = arrays.mapped(files.manifest)["paths"].tolist()
    assert {Path(path).read_bytes() for path in paths} == published and len(paths) == 12
    for path, image, label in zip(paths, files.images, files.labels, strict=True):
        assert np.array_equal(np.array(Image.open(path)).transpose(2, 0, 1), image)
        assert abs(image.mean() // 100 - label) < 1


@pytest.mark.parametrize(("off", "fault"), [
    (0.0, ""), (0.4, ""), (1.0, "pixels differ by more than 0.5 of 255 levels in the mean"),
    (30.0, "pixels are off by up to 30 of 255 levels, 2 is allowed"),
])
def test_a_jpeg_decoder_may_round_otherwise_within_two_levels(archive, tmp_path, off, fault):
    files = image_files.write(tmp_path / "files", networks.get("resnet56"), 4, seed=1)
    found = delivery.compare(batches_of(files, 0, 4, 4, lambda levels: levels + off), files, 0, 4)
    assert found.error == pytest.approx(off, abs=1e-3)
    assert found.fault.startswith(fault) and bool(found.fault) == bool(fault)


def test_what_is_right_is_right_from_any_place_on(drawn):
    for first in (0, 37, len(drawn.order) - 3):
        assert delivery.compare(batches_of(drawn, first, 3, 16), drawn, first, 16).fault == ""
    shifted = delivery.compare(batches_of(drawn, 5, 1, 16), drawn, 4, 16)
    assert shifted.fault == "samples were not delivered: 1 from place 4 of the order on"


@pytest.mark.parametrize("kinds", [("U4", int), (float, "U4"), (bool, int), (complex, int)])
def test_a_batch_without_numbers_is_refused(drawn, kinds):
    inputs, labels = (np.zeros(shape, kind) for shape, kind in zip(((16, 1, 28, 28), 16), kinds, strict=True))
    assert delivery.compare([(inputs, labels)], drawn, 0, 16).fault == (
        f"batch 0 is of {inputs.dtype} and its labels of {labels.dtype}, not of numbers")


def test_a_batch_of_another_size_is_refused(drawn):
    found = delivery.compare([(np.zeros((15, 1, 28, 28)), np.zeros(15))], drawn, 0, 16)
    assert found.fault.startswith("batch 0 has shape (15, 1, 28, 28)")


def test_png_files_of_three_channels_are_read_by_pillow_as_they_were_drawn():
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 7)).astype(np.uint8)
    found = Image.open(io.BytesIO(image_files._png(image)))
    assert found.mode == "RGB" and np.array_equal(np.array(found).transpose(2, 0, 1), image)
