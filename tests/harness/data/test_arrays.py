import os

import numpy as np
import pytest

import networks
from harness.data import arrays
from networks import Layer, Network
from networks.builder import Builder


def written(builder: Builder) -> Network:
    return Network(name="written", title="written", data_set="synthetic", batches=(4,), learning_rate=0.1, momentum=0.9,
                   input_shape=builder.input_shape, vocabulary=builder.vocabulary,
                   classes=builder.shapes[builder.last][-1], layers=tuple(builder.layers))


@pytest.mark.parametrize("name", networks.names(small=True))
def test_weights_have_every_parameter_in_its_canonical_shape(name: str):
    network = networks.get(name)
    weights = arrays.draw_weights(network, seed=1)
    assert {full: array.shape for full, array in weights.items()} == network.parameter_shapes
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}


def test_one_seed_gives_the_same_weights_and_another_seed_others():
    network = networks.get("tiny_bottleneck")
    first, again, other = (arrays.draw_weights(network, seed) for seed in (1, 1, 2))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name]), name


def test_a_seed_means_the_same_numbers_for_ever():
    bias = arrays.draw_weights(networks.get("tiny_fcn"), seed=1)["dense4.bias"]
    wanted = np.array([-0.021730417, 0.027836466, 0.0070806504, 0.000571543, -0.027838146], np.float32)
    np.testing.assert_array_equal(bias, wanted, strict=True)


def test_a_layer_more_leaves_the_other_layers_weights_as_they_were():
    short, long = Builder((6,)), Builder((6,))
    for builder in (short, long):
        builder.dense(6)
        builder.sigmoid()
        builder.dense(6)
    long.sigmoid()
    long.dense(3)
    before, after = (arrays.draw_weights(written(builder), seed=1) for builder in (short, long))
    np.testing.assert_array_equal(before["dense1.weight"], after["dense1.weight"])
    np.testing.assert_array_equal(before["dense2.bias"], after["dense2.bias"])


def test_weights_scale_with_what_stands_behind_the_product():
    net = Builder((64, 12, 12))
    net.conv(256, kernel=3, padding=1)
    net.relu()
    net.conv(256, kernel=3, padding=1)
    net.max_pool(3, 2)
    net.relu()
    net.conv(64, kernel=3, padding=1)
    net.batch_norm()
    net.relu()
    net.flatten()
    net.dense(256)
    net.sigmoid()
    net.dense(256)
    weights = arrays.draw_weights(written(net), seed=1)
    gains = {name: float(np.var(array) * np.prod(array.shape[1:])) for name, array in weights.items() if name.endswith("weight")}
    wanted = {"conv2d1.weight": 0.5, "conv2d2.weight": 0.4, "conv2d3.weight": 2.0, "dense1.weight": 16.0, "dense2.weight": 1.0}
    assert gains == pytest.approx(wanted, rel=0.03)


def test_what_lrn_normalises_is_larger_and_what_reads_it_smaller_by_as_much():
    net = Builder((64, 12, 12))
    net.conv(256, kernel=3, padding=1)
    net.relu()
    net.lrn()
    net.conv(256, kernel=3, padding=1)
    net.max_pool(3, 1, padding=1)  # one branch of an inception, so it does not count
    net.relu()
    net.conv(64, kernel=3, padding=1)
    net.flatten()
    net.dense(8)
    weights = arrays.draw_weights(written(net), seed=1)
    gains = {name: float(np.var(array) * np.prod(array.shape[1:])) for name, array in weights.items() if name.endswith("weight")}
    wanted = {"conv2d1.weight": 0.5 * 16, "conv2d2.weight": 0.5 / 16, "conv2d3.weight": 1.0, "dense1.weight": 1.0}
    assert gains == pytest.approx(wanted, rel=0.03)


def test_a_deep_network_keeps_its_variance_behind_each_relu():
    weights = arrays.draw_weights(networks.get("vgg16"), seed=1)
    gains = [float(np.var(weights[f"conv2d{number}.weight"]) * np.prod(weights[f"conv2d{number}.weight"].shape[1:]))
             for number in (3, 4, 5)]
    assert gains == pytest.approx([2.0, 0.4, 2.0], rel=0.03)  # the second is pooled


def test_no_bias_is_lost_in_zeros_and_batch_norm_starts_near_the_identity():
    weights = arrays.draw_weights(networks.get("resnet50"), seed=1)
    assert np.all(weights["dense1.bias"] != 0)
    assert np.abs(weights["dense1.bias"]).max() <= 0.05
    scales = np.concatenate([array for name, array in weights.items() if name.endswith(".scale")])
    shifts = np.concatenate([array for name, array in weights.items() if name.endswith(".shift")])
    assert (scales.mean(), scales.std(), shifts.mean(), shifts.std()) == pytest.approx((1, 0.1, 0, 0.1), abs=0.002)


def test_lstm_and_embedding_keep_their_ranges():
    weights = arrays.draw_weights(networks.get("lstm32"), seed=1)
    assert np.abs(weights["lstm1.weight_input"]).max() == pytest.approx(1 / 16, rel=1e-3)
    assert np.abs(weights["lstm2.weight_hidden"]).max() == pytest.approx(1 / 16, rel=1e-3)
    assert np.abs(weights["lstm1.bias"]).max() == pytest.approx(0.05, rel=1e-2)
    assert weights["embedding1.weight"].std() == pytest.approx(0.1, rel=1e-2)


def test_an_operation_without_a_rule_is_named():
    layer = Layer("mystery1", "mystery", ("input",), {}, (3,), {"weight": (3, 3)})
    network = Network("odd", "odd", "synthetic", (1,), 0.1, 0.9, (3,), 0, 3, (layer,))
    with pytest.raises(ValueError, match="mystery1: no rule to draw the weights of a mystery"):
        arrays.draw_weights(network, seed=1)


@pytest.mark.parametrize("name", networks.names(small=True))
def test_synthetic_batches_have_the_shapes_and_types_that_runners_take(name: str):
    network = networks.get(name)
    inputs, targets = arrays.synthetic_batches(network, batch=4, count=3, seed=1)
    assert inputs.shape == (3, 4, *network.input_shape)
    assert inputs.dtype == (np.int32 if network.vocabulary else np.float32)
    assert targets.shape == (3, 4, *network.target_shape)
    assert targets.dtype == np.int32
    assert 0 <= targets.min() <= targets.max() < network.classes
    assert inputs.flags.c_contiguous and targets.flags.c_contiguous


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_lstm"])
def test_a_longer_ring_begins_with_the_shorter_one_and_repeats_no_batch(name: str):
    network = networks.get(name)
    short, _ = arrays.synthetic_batches(network, batch=4, count=2, seed=1)
    long, _ = arrays.synthetic_batches(network, batch=4, count=8, seed=1)
    np.testing.assert_array_equal(long[:2], short)
    assert len({batch.tobytes() for batch in long}) == 8


def test_another_seed_gives_other_batches():
    network = networks.get("tiny_cnn")
    first, _ = arrays.synthetic_batches(network, batch=4, count=1, seed=1)
    other, _ = arrays.synthetic_batches(network, batch=4, count=1, seed=2)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_cnn"])
def test_the_mean_input_of_a_label_tells_unseen_samples_labels(name: str):
    network = networks.get(name)
    inputs, targets = arrays.synthetic_batches(network, batch=256, count=2, seed=1)
    rows = inputs.reshape(2, 256, -1)
    means = np.stack([rows[0][targets[0] == label].mean(0) for label in range(network.classes)])
    guessed = (((rows[1][:, None] - means) ** 2).sum(2)).argmin(1)
    assert (guessed == targets[1]).mean() > 0.8  # one guess in five or seven would be chance
    shuffled = np.random.default_rng(0).permutation(targets[1])
    assert (guessed == shuffled).mean() < 0.4  # the control: the inputs tell nothing of labels that are not theirs


def test_a_words_target_is_the_next_word_and_one_of_few_successors():
    inputs, targets = arrays.synthetic_batches(networks.get("tiny_lstm"), batch=64, count=4, seed=1)
    np.testing.assert_array_equal(inputs[..., 1:], targets[..., :-1])
    followers = {word: set(targets[inputs == word].tolist()) for word in np.unique(inputs)}
    assert max(len(words) for words in followers.values()) <= 4


@pytest.mark.parametrize(("name", "batch", "count"), [
    ("fcn5", 4096, 8), ("fcns", 1024, 4), ("resnet50", 64, 8), ("resnet50", 256, 3), ("resnet50", 4096, 2), ("lstm64", 512, 8),
])
def test_a_ring_is_eight_batches_or_what_512_mib_hold_or_two(name: str, batch: int, count: int):
    assert arrays.ring_length(networks.get(name), batch) == count


def test_saved_arrays_come_back_under_their_names(tmp_path):
    network = networks.get("tiny_lstm")
    weights = arrays.draw_weights(network, seed=1)
    inputs, targets = arrays.synthetic_batches(network, batch=2, count=2, seed=1)
    arrays.save_weights(tmp_path / "weights.npz", weights)
    arrays.save_batches(tmp_path / "batches.npz", inputs, targets)
    with np.load(tmp_path / "weights.npz") as loaded:
        assert sorted(loaded.files) == sorted(weights)
        for name, array in weights.items():
            np.testing.assert_array_equal(loaded[name], array)
    with np.load(tmp_path / "batches.npz") as loaded:
        assert sorted(loaded.files) == ["inputs", "targets"]
        np.testing.assert_array_equal(loaded["inputs"], inputs)
        np.testing.assert_array_equal(loaded["targets"], targets)


def test_mapped_arrays_are_the_files(tmp_path):
    written = {"dense1.weights": np.arange(12, dtype=np.float32).reshape(3, 4), "columns": np.asfortranarray(np.eye(3)[:2]),
               "nothing": np.zeros((0, 3)), "one": np.array(7), "a/path": np.arange(5, dtype=">i2")}
    np.savez(tmp_path / "arrays.npz", **written)
    mapped = arrays.mapped(tmp_path / "arrays.npz")
    assert list(mapped) == list(written)
    for name, array in written.items():
        np.testing.assert_array_equal(mapped[name], array)
        assert (mapped[name].dtype, mapped[name].shape) == (array.dtype, array.shape), name
    with pytest.raises(ValueError, match="read-only"):
        mapped["one"][()] = 8


def test_a_mapped_file_holds_one_descriptor_however_many_arrays_it_has(tmp_path):
    """ResNet-50 has 161 tensors, a check reads five of each, and several run at a time: a process may have 1024."""
    np.savez(tmp_path / "arrays.npz", **{f"layer{number}": np.ones(3) for number in range(200)})
    before = len(os.listdir("/proc/self/fd"))
    mapped = arrays.mapped(tmp_path / "arrays.npz")
    assert len(mapped) == 200 and len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_compressed_file_is_not_mapped(tmp_path):
    np.savez_compressed(tmp_path / "arrays.npz", zeros=np.zeros(100))
    with pytest.raises(ValueError, match=r"arrays.npz: zeros.npy is compressed"):
        arrays.mapped(tmp_path / "arrays.npz")
