"""What the reference says of dropout's masks is what its gradients have."""

import numpy as np

from harness.proof.dropout import Masked
from runners.reference.answers import Masks

RUNS = 16
MEAN = np.linspace(1, 2, 40)
DEVIATIONS = np.linspace(4, 1, 40)


def drawn(seed: int) -> np.ndarray:
    """Gradients of `RUNS` runs, relative to a gradient without dropout of norm 1."""
    return np.random.default_rng(seed).normal(MEAN, DEVIATIONS, (RUNS, len(MEAN)))


def summary(gradients: np.ndarray) -> Masked:
    exact = np.zeros(len(MEAN))
    exact[0] = 1
    masks = Masks(exact)
    for gradient in gradients:
        masks.add(gradient)
    return Masked(*masks.summary())


def test_sums_give_the_mean_and_the_variance_of_all_pairs_of_gradients():
    gradients = drawn(1)
    products = gradients @ gradients.T
    found = summary(gradients)
    pairs = (products.sum() - products.trace()) / (RUNS * (RUNS - 1))
    np.testing.assert_allclose(found.square, pairs)
    np.testing.assert_allclose(found.variance, gradients.var(axis=0, ddof=1).sum())
    np.testing.assert_allclose(found.spread, products.diagonal().std(ddof=1))
    np.testing.assert_allclose(found.least_norm, products.diagonal().min())
    np.testing.assert_allclose([found.coefficient, found.deviation],
                               [gradients[:, 0].mean(), gradients[:, 0].std(ddof=1)])


def test_deviations_are_those_of_the_distribution():
    """The squared norm of a mean of n runs has the standard deviation 2 `along` / sqrt(n)."""
    found = [summary(drawn(seed)) for seed in range(300)]
    along = np.sqrt(np.square(MEAN * DEVIATIONS).sum())
    # Early means are of few gradients, which add to it.
    assert along < np.median([each.along for each in found]) < 1.5 * along
    squares = np.array([each.square for each in found])
    np.testing.assert_allclose(squares.mean(), np.square(MEAN).sum(), rtol=0.05)
    # The products of two gradients' noise add a little.
    assert 1 < squares.std() / (2 * along / np.sqrt(RUNS)) < 1.5


def test_all_pairs_say_more_than_neighbours():
    truth = np.square(MEAN).sum()
    ours, neighbours = [], []
    for seed in range(100):
        gradients = drawn(seed)
        ours.append(summary(gradients).square - truth)
        half = np.square(np.diff(gradients, axis=0)).sum(axis=1).mean() / 2
        neighbours.append(np.square(gradients).sum(axis=1).mean() - half - truth)
    assert np.std(ours) < 0.8 * np.std(neighbours)
