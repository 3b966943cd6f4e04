"""How far two correct computations of one network may differ, from the precision's unit roundoff.

Measured by computing `networks` in float64 and in float32 with operands rounded to each precision:
four networks, batches 2 to 64, one to five seeds. Each factor is at least twice what was found.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

import networks
from analysis.strategies import table as strategies

# u = 2^-p for a significand of p bits, with the leading one. Every precision adds up in fp32.
FP32 = 2.0**-24
# Rounding of a product's operands, beyond fp32.
OPERANDS = {"fp32": 0.0, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}

# Times FP32 and times u; found 2 and 1.3.
LOSS = (170, 8)
# Found 1.9, see `loss_tolerance`.
KINK = 4.0
# Roundings of a sum that reach a pre-activation, in FP32.
SUMS = 16

# A random mask moves even the untrained network's loss, so only gross faults show. Of campaigns of
# earlier releases: today's proof knows what random masks make of a loss.
DROPOUT_LOSS = 0.25
# A step, once a unit flips: ResNet-56 at batch 16 had 6e-7, 2e-3, 8e-2 at steps 2, 4, 8.
GROWTH = 4.0
# Above this tolerance single losses cannot be compared.
CHAOS = 0.5
# So many steps of a strategy that sends the first ones whole are checked.
LATER_STEPS = 8
# How far the copies of a parameter may differ, as a share of the largest change in training. A copy
# that missed one update of N is off by about 1 / N. Rounding is near 1e-7: 3.5e-7 after 120 steps
# of LSTM-32 where one of two CPUs added an embedding's rows in random order.
COPIES = 1e-5
# Units in the last place by which copies may differ besides, because an update may round up on one
# device and down on another: never more than two in 12 random orders of LSTM-32's check.
STORED_UNITS = 2
# For a network that this release does not know: more than any of ours has.
UNKNOWN_KINKS = 64


def loss_tolerance(precision: str, steps: ArrayLike, kinks: int = 0) -> NDArray[np.float64]:
    """Return how far two losses may differ relatively at each of `steps` (1: before training).

    In a smooth network the limit is a multiple of the rounding of operands (u) and sums (FP32), and
    grows as step^2. (FCN-5 at batch 2 went from 6e-8 to 7e-5 in eight fp32 steps, from 4e-5 to 0.08
    in tf32; at batch 64 to 6e-7 in 64 steps.) A kink is worse. Pre-activations have an error
    e = SUMS FP32 + u, so a share e of the units flips, and each changes its gradient completely:
    the relative L2 error is sqrt(kinks e) over `kinks` independent layers of ReLU or max pooling.
    (ResNet-56's 55 had 0.013, 0.30 and 0.80 in fp32, tf32 and bf16, where sqrt(kinks e) is 0.0072,
    0.17 and 0.46.) Training is chaotic then: KINK sqrt(kinks e) GROWTH^(step - 3). Above `CHAOS`
    two right losses may differ freely, so the steps before must prove the sameness.
    """
    if precision not in OPERANDS:
        raise ValueError(f"precision {precision}: no tolerance is known; "
                         f"write one of {', '.join(OPERANDS)}")
    steps = np.asarray(steps, float)
    growth = GROWTH ** np.minimum(steps - 3, 100)
    kinked = KINK * math.sqrt(kinks * (SUMS * FP32 + OPERANDS[precision]))
    smooth = LOSS[0] * FP32 + LOSS[1] * OPERANDS[precision]
    return smooth * steps**2 + np.where(steps > 1, kinked * growth, 0)


def kinks_of(network: str, strategy: str = "") -> int:
    """Count layers of ReLU and max pooling, and a strategy that rounds gradients."""
    described = networks.known(network)
    if not described:
        return UNKNOWN_KINKS
    kinks = sum(layer.op in ("relu", "max_pool") for layer in described.layers)
    return kinks + strategies.of(strategy).lossy
