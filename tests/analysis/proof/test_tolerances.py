"""Tolerances follow from the unit roundoff, grow with the steps, and stay below what a wrong network gives."""

import numpy as np
import pytest

from analysis.proof import tolerances
from analysis.proof.tolerances import kinks_of, loss_tolerance


def test_unit_roundoff_is_half_the_distance_of_neighbouring_numbers():
    assert np.finfo(np.float32).eps / 2 == tolerances.FP32
    assert tolerances.OPERANDS["fp16"] == np.finfo(np.float16).eps / 2
    assert tolerances.OPERANDS["bf16"] == 2.0**-8  # seven bits stored and one implied


def test_coarser_precisions_may_differ_more():
    first = [loss_tolerance(precision, [1])[0] for precision in ("fp32", "tf32", "bf16")]
    assert first == pytest.approx([1.0e-5, 3.9e-3, 3.1e-2], rel=0.02)
    assert loss_tolerance("fp16", [1]) == loss_tolerance("tf32", [1])


@pytest.mark.parametrize(("precision", "kinks", "step", "found"), [
    ("fp32", 0, 8, 7e-5), ("tf32", 0, 8, 0.08), ("bf16", 0, 3, 0.03), ("fp32", 0, 64, 6e-7),
    ("fp32", 55, 2, 2e-4), ("fp32", 55, 4, 4.3e-2), ("fp32", 5, 32, 4e-2), ("tf32", 55, 2, 8e-3),
])
def test_loss_differences_that_rounding_was_measured_to_cause_pass(precision, kinks, step, found):
    assert found < loss_tolerance(precision, [step], kinks)[0]


def test_the_tolerance_of_a_loss_never_shrinks():
    allowed = loss_tolerance("fp32", np.arange(1, 5000), 55)
    assert np.all(np.diff(allowed) >= 0) and np.all(np.isfinite(allowed))
    assert allowed[0] == loss_tolerance("fp32", [1])[0]


def test_kinks_are_counted_from_the_network():
    assert (kinks_of("fcn5"), kinks_of("alexnet_cifar"), kinks_of("resnet56"), kinks_of("lstm32")) == (0, 5, 55, 0)
    assert kinks_of("a network of a later release") == tolerances.UNKNOWN_KINKS


def test_an_unknown_precision_names_the_known_ones():
    with pytest.raises(ValueError, match="precision fp8: no tolerance is known; write one of fp32, tf32, bf16, fp16"):
        loss_tolerance("fp8", [1])
