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
    assert shipped.inputs.shape == (4000, 784) and shipped.test_inputs.shape == (1000, 784)
    assert np.bincount(shipped.test_labels).tolist() == 10 * [100]
    assert shipped.inputs.min() >= 0 and shipped.inputs.max() == 1
    both = {image.tobytes() for image in shipped.inputs} & {image.tobytes() for image in shipped.test_inputs}
    assert both == set()
    assert shipped.text.endswith(": 4,000 to train, 1,000 of all classes to test")


def test_an_epoch_has_whole_batches_of_other_samples_in_an_order_of_its_seed(shipped):
    inputs, labels = shipped.epoch(300, seed=1, number=2)
    assert inputs.shape == (13, 300, 784) and labels.shape == (13, 300)
    again, _ = shipped.epoch(300, seed=1, number=2)
    assert np.array_equal(inputs, again)
    for seed, number in ((2, 2), (1, 3)):
        assert not np.array_equal(labels, shipped.epoch(300, seed, number)[1])
    whole, _ = shipped.epoch(100, seed=1, number=1)
    assert np.array_equal(np.sort(whole.reshape(4000, -1).sum(axis=1)), np.sort(shipped.inputs.sum(axis=1)))


def test_the_publishers_test_part_is_tested_where_it_is_here(monkeypatch):
    parts = {0: data_sets.Read((np.zeros((50, 1, 28, 28), np.uint8), np.arange(50) % 10), "a"),
             1: data_sets.Read((np.ones((100, 1, 28, 28), np.uint8), np.arange(100) % 10), "b")}
    monkeypatch.setattr(data_sets, "part", lambda name, number: parts[number])
    found = divided.divide("mnist", networks.get("fcn5"))
    assert (len(found.inputs), len(found.test_inputs), found.text) == (50, 100, "a to train, b to test")
    parts[0] = None
    assert divided.divide("mnist", networks.get("fcn5")).text == "b: 80 to train, 20 of all classes to test"
