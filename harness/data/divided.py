"""A set of images divided for training until a target: one part to train on, one to test.

The test part is the publisher's where its files are here. Otherwise each class of the shipped
digits gives a seeded fifth, which is the same for every seed of a suite.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from harness.data import data_sets
from harness.errors import WrongUse
from networks import Network

# Sets whose reader knows a training part and a test part.
DIVISIBLE = ("mnist",)
TEST_SHARE = 0.2
# Of the division. Not the suite's, so that two suites test the same images.
SEED = 0
TRAINING, TEST = 0, 1


@dataclass(frozen=True)
class Divided:
    """Samples [N, *input_shape] and labels [N] of both parts; `text` says where they come from."""

    inputs: np.ndarray
    labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    text: str

    def epoch(self, batch: int, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Shuffle the training part for epoch `number` and cut it into whole mini-batches.

        Returns inputs [S, B, *input_shape] and labels [S, B]. A partial last batch is dropped.
        """
        steps = len(self.inputs) // batch
        order = np.random.default_rng([seed, number]).permutation(len(self.inputs))
        order = order[:steps * batch]
        return (self.inputs[order].reshape(steps, batch, *self.inputs.shape[1:]),
                self.labels[order].reshape(steps, batch))


def divide(name: str, network: Network) -> Divided:
    """Return the parts of a set in the shape that `network` takes. Raises WrongUse."""
    (images, labels), (test_images, test_labels), text = _parts(name)
    inputs, labels = data_sets.prepared(name, network, images, labels)
    test_inputs, test_labels = data_sets.prepared(name, network, test_images, test_labels)
    return Divided(inputs, labels, test_inputs, test_labels, text)


def text_of(name: str) -> str:
    """Say what a set's training part and test part are read from."""
    return _parts(name)[2]


def stratified(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw `share` of the samples of each class; return their numbers in order."""
    generator = np.random.default_rng(seed)
    chosen = [generator.permutation(own)[:round(share * len(own))]
              for own in (np.flatnonzero(labels == label) for label in np.unique(labels))]
    return np.sort(np.concatenate(chosen))


def _parts(name: str) -> tuple[data_sets.Images, data_sets.Images, str]:
    # The files may change between two campaigns of one process.
    training, test = data_sets.part(name, TRAINING), data_sets.part(name, TEST)
    if test and training:
        return training.images, test.images, f"{training.text} to train, {test.text} to test"
    whole = training or test
    if not whole:
        raise WrongUse(f"{name}: no file of it is here; run `dlbench data fetch {name}`")
    return _split(whole)


@lru_cache(maxsize=2)
def _split(whole: data_sets.Read) -> tuple[data_sets.Images, data_sets.Images, str]:
    images, labels = whole.images
    chosen = stratified(labels, TEST_SHARE, SEED)
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    text = f"{whole.text}: {len(rest):,} to train, {len(chosen):,} of all classes to test"
    return (images[rest], labels[rest]), (images[chosen], labels[chosen]), text
