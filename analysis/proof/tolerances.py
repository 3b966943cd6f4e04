"""How far two correct computations of one network may lie apart, derived from the unit roundoff of the precision.

Measured with an interpreter of `networks` in float64 against float32 with operands rounded to each precision: four networks,
batches 2 to 64, one to five seeds. Each factor below is at least twice what that found. The numbers stand beside the factors.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import networks

# u = 2^-p for a significand of p bits, its leading one included. Every precision here adds up in fp32.
FP32 = 2.0**-24
OPERANDS = {"fp32": 0.0, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}  # rounding of a product's operands, beyond fp32

LOSS = (170, 8)  # times FP32 and times u; found 2 and 1.3
GRADIENT = (3400, 16)  # found 1785 (ResNet-50 in MXNet; others 70 to 1325) and 1.9; TF32 passing for fp32 has 5700 at least
MOVED = 16  # times a gradient's tolerance; found 25 times the gradient's own error after four steps
KINK = 4.0  # found 1.9: see `tolerance_of`
SUMS = 16  # roundings of a sum that reach a pre-activation, in FP32
MOST = 0.9  # a tensor that is all zeros has the relative error 1: what allows more checks nothing
LOST = 0.5  # gradients so far apart lead anywhere: ResNet-56 in tf32 moved by 0.6 to 1.1 otherwise in four steps

DROPOUT_LOSS = 0.25  # a random mask moves even the untrained network's loss, so only gross faults show
GROWTH = 4.0  # a step, once a kink has turned: ResNet-56 at batch 16 went 6e-7, 2e-3, 8e-2 at steps 2, 4, 8
CHAOS = 0.5  # where the tolerance passes this, single losses can no longer be compared
# Strategies that do not send all of a gradient: how far any tensor may have moved otherwise after the check's three steps. PowerSGD
# sends two of them whole and was 0.34 off with FCN-5 on four H200s; bf16 was 0.19 off on three ranks with eight small networks, two
# batches and two seeds. One bit was 0.6 to 1.0 off, and 3.0 in a bottleneck: no limit, for what does not move is 1 off.
# (`harness.proof.judge` holds the sum of its first step against the right one's.)
LOSSY = {"power_sgd": 0.7, "bf16_compress": 0.4, "one_bit": math.inf}
# A strategy that sends its first steps whole shows little of what it does in the check's three: all that PowerSGD does not send of
# the third gradient is 0.1 to 0.4 of the move. So it goes on to `LATER_STEPS`: (steps sent whole, how far off the others' moves may
# be). What is not sent at all is 1.0 off. PowerSGD was 0.12 to 0.60 off on two CPU ranks (six small networks, fcn5, resnet8,
# resnet56, alexnet_cifar and lstm32, the worst), 0.33 to 0.58 on four. One rank's gradients in place of the mean were 0.71 to 27
# off, in 13 of 15 draws above 0.85.
LATER_STEPS = 8
LATER = {"power_sgd": (2, 0.85)}
# How far the copies of a parameter on several devices may differ, as a share of the largest change that training made to it. A copy
# that missed one update of N is off by about 1 / N of that, so of 100,000 one is still seen. Rounding is near 1e-7: where one of
# two logical CPUs added an embedding's rows in random order, 3.5e-7 after 120 steps of LSTM-32 (batch 32 on each, seed 1).
COPIES = 1e-5
# Beyond these units in the last place of what is stored, for an update may round up on one device and down on another. The check's
# three steps change LSTM-32's embedding by 2e-4 at most, of which one unit in a weight of 0.1 is 4e-5 (2 samples on each of two and
# four logical CPUs, seed 1: never more than two units in 12 random orders).
STORED_UNITS = 2
UNKNOWN_KINKS = 64  # of a network that this release does not know: more than any of ours has


@dataclass(frozen=True)
class Tolerance:
    """Largest relative errors: of the first loss, of any gradient tensor (L2), and of how far any tensor has moved (L2)."""

    loss: float
    gradient: float
    trajectory: float


def tolerance_of(precision: str, kinks: int = 0) -> Tolerance:
    """Return what a check may allow under `precision` for a network with `kinks` layers of ReLU or max pooling.

    Rounding enters a smooth network through its operands (u) and its sums (FP32), and leaves it as a multiple of both.
    A kink is worse. Pre-activations carry an error e = SUMS FP32 + u, so a share e of them changes sign or of windows another
    maximum, and each such turn changes a gradient by all of itself: its relative L2 error is sqrt(e) a layer, and over
    independent layers sqrt(kinks e). Found for ResNet-56 (55 kinks): 0.013, 0.30 and 0.80 in fp32, tf32 and bf16, where
    sqrt(kinks e) is 0.0072, 0.17 and 0.46; without a turn its fp32 error is 4e-6, and the loss keeps its 1e-7 anyway.
    """
    if precision not in OPERANDS:
        raise ValueError(f"precision {precision}: no tolerance is known; write one of {', '.join(OPERANDS)}")
    u = OPERANDS[precision]
    gradient = min(MOST, GRADIENT[0] * FP32 + GRADIENT[1] * u + _kinked(precision, kinks))
    moved = min(MOST, MOVED * gradient) if gradient < LOST else math.inf
    return Tolerance(LOSS[0] * FP32 + LOSS[1] * u, gradient, moved)


def loss_tolerance(precision: str, steps: ArrayLike, kinks: int = 0) -> NDArray[np.float64]:
    """Return how far two losses may lie apart relatively at each of `steps` (1 is the untrained network's).

    In a smooth network it grows as the error of the weights adds up and acts on itself: tolerance(loss) x step^2 (FCN-5 at
    batch 2 went from 6e-8 to 7e-5 in eight fp32 steps, from 4e-5 to 0.08 in tf32; at batch 64 only to 6e-7 in 64 steps).
    Where a kink turns, training is chaotic and the difference grows by a factor a step: KINK sqrt(kinks e) GROWTH^(step - 3).
    Beyond `CHAOS` two right losses may differ as they like: the steps before must prove the sameness.
    """
    steps = np.asarray(steps, float)
    turned = np.where(steps > 1, _kinked(precision, kinks) * GROWTH ** np.minimum(steps - 3, 100), 0)
    return tolerance_of(precision).loss * steps**2 + turned


def kinks_of(network: str, strategy: str = "") -> int:
    """Count what makes a gradient jump: layers of ReLU and max pooling, and a strategy that rounds it, to a sign at worst."""
    try:
        layers = networks.get(network).layers
    except networks.UnknownNetwork:
        return UNKNOWN_KINKS
    return sum(layer.op in ("relu", "max_pool") for layer in layers) + (strategy in LOSSY)


def _kinked(precision: str, kinks: int) -> float:
    return KINK * math.sqrt(kinks * (SUMS * FP32 + OPERANDS[precision]))
