"""A set of images divided for training until a target: one part to train on, one to test.

The test part is the publisher's where its files are here. Otherwise each class of the shipped
digits gives a seeded fifth, which is the same for every seed of a suite.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from harness.data import arrays, augmentation, data_sets
from harness.errors import WrongUse
from networks import Network

# Sets whose reader knows a training part and a test part.
DIVISIBLE = ("mnist", "cifar10-jpeg")
TEST_SHARE = 0.2
# Seeds the division. It is not the suite's seed, so all suites test the same images.
SEED = 0
TRAINING, TEST = 0, 1


@dataclass(frozen=True, eq=False)
class Divided:
    """Both parts of a set for a network; `text` says where they come from."""

    name: str
    network: Network
    training: data_sets.Read
    test: data_sets.Read
    text: str

    @property
    def count(self) -> int:
        """The samples of the training part."""
        return len(self.training.images[0])

    @cached_property
    def test_part(self) -> arrays.Arrays:
        """Samples [n, *input_shape] and labels [n], from the darkest image to the brightest.

        So batch norm that reads a batch's own statistics instead of running ones answers otherwise.
        """
        images, labels = self.test.images
        order = np.argsort(images.reshape(len(images), -1).mean(axis=1), kind="stable")
        return data_sets.prepared(self.name, self.network, images[order], labels[order])

    def training_samples(self, count: int, seed: int) -> np.ndarray:
        """Draw samples [count, *input_shape] of the training part, none twice if they suffice."""
        images, labels = self.training.images
        generator = np.random.default_rng(seed)
        rows = generator.choice(len(images), count, replace=count > len(images))
        return data_sets.prepared(self.name, self.network, images[rows], labels[rows])[0]

    def epoch(self, batch: int, seed: int, number: int,
              augment: bool = False) -> dict[str, np.ndarray]:
        """Shuffle the training part for epoch `number` and cut it into whole mini-batches.

        Returns `inputs` [S, B, *input_shape] and `targets` [S, B]. A partial last batch is dropped.
        With `augment` images are cropped and mirrored at random; they lie as
        `inputs_channels_last` [S, B, H, W, C].
        """
        images, labels = self.training.images
        steps, generator = len(images) // batch, np.random.default_rng([seed, number])
        order = generator.permutation(len(images))[:steps * batch]
        targets = labels[order].astype(np.int32).reshape(steps, batch)
        if augment:
            inputs = augmentation.augmented(_padded(self.training), self._table, generator, order)
            return {"inputs_channels_last": inputs.reshape(steps, batch, *inputs.shape[1:]),
                    "targets": targets}
        inputs, _ = data_sets.prepared(self.name, self.network, images[order], labels[order])
        return {"inputs": inputs.reshape(steps, batch, *inputs.shape[1:]), "targets": targets}

    @cached_property
    def _table(self) -> np.ndarray:
        """The number that the network reads for each byte of each channel, [C, 256]."""
        channels = self.network.input_shape[0]
        side = np.zeros((256, *self.network.input_shape), np.uint8)
        side[:] = np.arange(256).reshape(-1, 1, 1, 1)
        numbers, _ = data_sets.prepared(self.name, self.network, side, np.zeros(256, int))
        return numbers.reshape(256, channels, -1)[:, :, 0].T.copy()


def divide(name: str, network: Network) -> Divided:
    """Return the parts of a set for `network`. Raises WrongUse if they do not fit it."""
    training, test, text = _parts(name)
    for part in (training, test):
        images, labels = part.images
        data_sets.prepared(name, network, images[:1], labels[:1])
    return Divided(name, network, training, test, text)


@lru_cache(maxsize=1)
def _padded(part: data_sets.Read) -> np.ndarray:
    """Pad a part once: all processes of a campaign crop the same images."""
    return augmentation.padded(part.images[0])


def text_of(name: str) -> str:
    """Say what a set's training part and test part are read from."""
    return _parts(name)[2]


def stratified(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw `share` of the samples of each class; return their numbers in order."""
    generator = np.random.default_rng(seed)
    chosen = [generator.permutation(own)[:round(share * len(own))]
              for own in (np.flatnonzero(labels == label) for label in np.unique(labels))]
    return np.sort(np.concatenate(chosen))


def _parts(name: str) -> tuple[data_sets.Read, data_sets.Read, str]:
    # The files may change between two campaigns of one process.
    training, test = data_sets.part(name, TRAINING), data_sets.part(name, TEST)
    if test and training:
        return training, test, f"{training.text} to train, {test.text} to test"
    whole = training or test
    if not whole:
        raise WrongUse(f"{name}: no file of it is here; run `dlbench data fetch {name}`")
    return _split(whole)


@lru_cache(maxsize=2)
def _split(whole: data_sets.Read) -> tuple[data_sets.Read, data_sets.Read, str]:
    images, labels = whole.images
    chosen = stratified(labels, TEST_SHARE, SEED)
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    text = f"{whole.text}: {len(rest):,} to train, {len(chosen):,} of all classes to test"
    training, test = (data_sets.Read((images[rows], labels[rows]), whole.text)
                      for rows in (rest, chosen))
    return training, test, text
