"""What two steps show of the gradient between them, with and without faults."""

import numpy as np
import pytest

from harness.accuracy import witness
from harness.accuracy.evaluation import score

RATE, MOMENTUM = 0.05, 0.9


def steps(rate=RATE, momentum=MOMENTUM, decay=0.0, scale=1.0):
    """Return three weights of a run with these settings, and the gradient at the second."""
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal((40, 30)).astype(np.float32)]
    velocity = generator.standard_normal((40, 30))
    for _ in range(2):
        gradient = scale * generator.standard_normal((40, 30))
        velocity = momentum * velocity + gradient + decay * weights[-1]
        weights.append((weights[-1] - rate * velocity).astype(np.float32))
    return *({"w": each} for each in weights), {"w": gradient}


def look(**fault):
    return witness.look(*steps(**fault), witness.Recipe(RATE, MOMENTUM))


def test_right_steps_agree_to_rounding():
    seen = look()
    assert seen.error < 1e-4 and seen.share == 1 and not seen.fault


@pytest.mark.parametrize("fault", [
    {"rate": 1.1 * RATE}, {"momentum": 0.8}, {"rate": 0.0}, {"rate": np.nan}])
def test_wrong_steps_are_named(fault):
    assert look(**fault).fault.startswith("the steps of this epoch are not those of the network: "
                                          "the gradient of w is off by")


def test_a_weight_decay_that_nobody_asked_for_is_named_and_one_that_was_asked_for_passes():
    seen = look(decay=1e-4)
    assert seen.error < 0.04 and "there is a weight decay of 0.0001 too much" in seen.fault
    assert not witness.look(*steps(decay=1e-4), witness.Recipe(RATE, MOMENTUM, 1e-4)).fault


@pytest.mark.parametrize("settled", [False, True])
def test_a_running_statistic_that_keeps_another_share_is_named(settled):
    generator = np.random.default_rng(0)
    before, *weights, gradients = steps()
    moment = 1 + 0.05 * generator.standard_normal(30)
    old = np.ones(30) if settled else np.zeros(30)
    for kept, fault in ((0.9, False), (0.99, True), (0.8, True)):
        between, after = weights
        recipe = witness.Recipe(RATE, MOMENTUM, running={"n.mean": 0.9})
        seen = witness.look({**before, "n.mean": old}, {**between, "n.mean": old},
                            {**after, "n.mean": kept * old + (1 - kept) * moment},
                            {**gradients, "n.mean": 0.1 * moment}, recipe)
        assert bool(seen.fault) == fault and ("the move of n.mean is off" in seen.fault) == fault
        assert seen.share == 1


def test_a_step_made_again_gives_its_gradient_and_what_statistics_gain():
    start = {"w": np.array([1.0, 2.0]), "n.variance": np.array([5.0])}
    after = {"w": np.array([0.5, 2.5]), "n.variance": np.array([1.2])}
    found = witness.own_gradients(start, after, 0.5, {"n.variance": 0.9})
    assert found["w"].tolist() == [1.0, -1.0] and np.allclose(found["n.variance"], 0.3)


def test_gradients_below_the_rounding_of_weights_are_not_seen():
    assert look(scale=1e-6) == witness.Seen(0.0, "", 0.0)


def test_outputs_give_the_share_of_right_answers_and_the_loss():
    outputs = np.log([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])
    found = score(outputs, np.array([0, 2, 1, 1]))
    assert (found.accuracy, found.loss) == (0.75, pytest.approx(-np.mean(np.log([0.7, 0.4, 0.25, 0.8]))))
