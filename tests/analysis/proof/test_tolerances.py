"""Tolerances follow from the unit roundoff, grow with the steps, and stay below what a wrong network gives."""

import math

import numpy as np
import pytest

from analysis.proof import tolerances
from analysis.proof.tolerances import Tolerance, kinks_of, loss_tolerance, tolerance_of


def test_unit_roundoff_is_half_the_distance_of_neighbouring_numbers():
    assert np.finfo(np.float32).eps / 2 == tolerances.FP32
    assert tolerances.OPERANDS["fp16"] == np.finfo(np.float16).eps / 2
    assert tolerances.OPERANDS["bf16"] == 2.0**-8  # seven bits stored and one implied


def test_a_smooth_network_in_fp32_may_differ_by_one_in_a_hundred_thousand():
    found = tolerance_of("fp32")
    assert found == Tolerance(pytest.approx(1.0e-5, rel=0.02), pytest.approx(2.0e-4, rel=0.02), pytest.approx(3.2e-3, rel=0.02))


def test_coarser_precisions_may_differ_more():
    gradients = [tolerance_of(precision).gradient for precision in ("fp32", "tf32", "bf16")]
    assert gradients == pytest.approx([2.0e-4, 8.0e-3, 6.3e-2], rel=0.02)
    assert tolerance_of("fp16") == tolerance_of("tf32")


@pytest.mark.parametrize(("precision", "kinks", "found"), [
    ("fp32", 0, 8.8e-7), ("tf32", 0, 9.6e-4), ("bf16", 0, 7.6e-3),  # FCN-5
    ("fp32", 5, 2.4e-3), ("tf32", 5, 2.4e-2), ("bf16", 5, 0.11),  # AlexNet-R
    ("fp32", 55, 1.3e-2), ("tf32", 55, 0.30), ("bf16", 55, 0.80),  # ResNet-56
])
def test_gradient_errors_that_rounding_was_measured_to_cause_pass(precision, kinks, found):
    assert found < tolerance_of(precision, kinks).gradient < 1.0  # a gradient of zeros has the error 1


def test_where_gradients_are_lost_no_trajectory_is_asked():
    assert math.isinf(tolerance_of("bf16", 55).trajectory)
    assert tolerance_of("fp32", 55).trajectory < 0.5


@pytest.mark.parametrize(("precision", "kinks", "step", "found"), [
    ("fp32", 0, 8, 7e-5), ("tf32", 0, 8, 0.08), ("bf16", 0, 3, 0.03), ("fp32", 0, 64, 6e-7),
    ("fp32", 55, 2, 2e-4), ("fp32", 55, 4, 4.3e-2), ("fp32", 5, 32, 4e-2), ("tf32", 55, 2, 8e-3),
])
def test_loss_differences_that_rounding_was_measured_to_cause_pass(precision, kinks, step, found):
    assert found < loss_tolerance(precision, [step], kinks)[0]


def test_the_tolerance_of_a_loss_never_shrinks():
    allowed = loss_tolerance("fp32", np.arange(1, 5000), 55)
    assert np.all(np.diff(allowed) >= 0) and np.all(np.isfinite(allowed))
    assert allowed[0] == tolerance_of("fp32").loss


def test_kinks_are_counted_from_the_network():
    assert (kinks_of("fcn5"), kinks_of("alexnet_cifar"), kinks_of("resnet56"), kinks_of("lstm32")) == (0, 5, 55, 0)
    assert kinks_of("a network of a later release") == tolerances.UNKNOWN_KINKS


def test_an_unknown_precision_names_the_known_ones():
    with pytest.raises(ValueError, match="precision fp8: no tolerance is known; write one of fp32, tf32, bf16, fp16"):
        tolerance_of("fp8")
