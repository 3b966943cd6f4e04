"""How far a bootstrap's percentiles must be pushed outwards for few processes to reach 95 %.

The bootstrap of a median of n processes knows n values. For n = 3 its 2.5th percentile is the
smallest of the three, and the true median lies beyond it in one case of eight. Simulation finds the
factor, as in the calibration of confidence sets (Loh 1987; Davison and Hinkley 1997, section 5.6):
draw n normal process effects many times and see how much wider the interval should have been.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Simulated campaigns: the coverage of 95 % is then known to 0.3 %.
CAMPAIGNS = 6000
DRAWS = 512
# The spread of a process's median from its windows, as a share of the process effects.
WINDOWS = 0.03
SEED = 19870082
# What the simulation finds at CONFIDENCE for n processes: the factor for one estimate, and for the
# ratio of two equally noisy ones. Every command would simulate for a second; a test does instead.
CONFIDENCE = 0.95
FACTORS = {
    2: (7.079606168970127, 1.9918979328622386),
    3: (3.395306505878717, 0.9690564493267955),
    4: (1.5541549993609711, 0.9868070790124136),
    5: (1.059685441007622, 0.8221292242782822),
    6: (1.0826921710988462, 0.9653284816623297),
    7: (1.4136999359274882, 0.8849987082511822),
    8: (1.1335710117938327, 0.9041786548618397),
    9: (0.9496172177616476, 0.8584781205385104),
    10: (1.0360254683563244, 0.8567818627759762),
    20: (1.0581620276238999, 0.8882661780126075),
}


@cache
def one_side(processes: int, confidence: float) -> float:
    """Return the factor for one estimate of `processes` processes."""
    if confidence == CONFIDENCE and processes in FACTORS:
        return FACTORS[processes][0]
    return simulated_side(processes, confidence)


def simulated_side(processes: int, confidence: float) -> float:
    """Simulate the factor for one estimate."""
    centre, draws = _simulate(processes, np.random.default_rng([SEED, processes]))
    return float(np.quantile(_needed(centre, draws, confidence), confidence))


def two_sides(processes: int, others: int, share: float, confidence: float) -> float:
    """Return the factor for a ratio of two estimates.

    At share 1 one side makes all the noise, and the ratio is as uncertain as that side alone. At 0
    both make as much, and their errors partly cancel. Between, factors are blended by logarithms.
    """
    alone = _alone(processes, others, confidence)
    return float(alone ** share * _together(processes, others, confidence) ** (1 - share))


def share(variance: Array | float, other: Array | float) -> Array | float:
    """Return how much one side outweighs the other: 0 for equal variances, 1 if one has all."""
    total = np.maximum(variance + other, np.finfo(float).tiny)
    return ((variance - other) / total) ** 2


def _alone(processes: int, others: int, confidence: float) -> float:
    return max(one_side(processes, confidence), one_side(others, confidence))


@cache
def _together(processes: int, others: int, confidence: float) -> float:
    """Return the factor at share 0, over the shares that equally noisy sides happen to have."""
    if confidence == CONFIDENCE and processes == others and processes in FACTORS:
        return FACTORS[processes][1]
    return simulated_pair(processes, others, confidence)


def simulated_pair(processes: int, others: int, confidence: float) -> float:
    """Simulate the factor for a ratio of two equally noisy estimates."""
    generator = np.random.default_rng([SEED, processes, others])
    centre, draws = _simulate(processes, generator)
    other_centre, other_draws = _simulate(others, generator)
    weight = share(draws.var(axis=1), other_draws.var(axis=1))
    needed = _needed(centre - other_centre, draws - other_draws, confidence)
    alone = _alone(processes, others, confidence)
    together = (needed / alone**weight) ** (1 / np.maximum(1 - weight, 1e-3))
    return float(np.quantile(together, confidence))


def _simulate(processes: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Simulate medians of process effects, (CAMPAIGNS,), and the errors of their bootstrap draws.

    All campaigns pick the same processes, at evenly spread instead of random order statistics: a
    percentile of few processes jumps where a pick's probability is just above or below it.
    """
    # Loaded here, because every start of the command would wait for them.
    from scipy import special
    from scipy.stats import qmc

    effects = np.sort(generator.standard_normal((CAMPAIGNS, processes)), axis=1)
    # Permuted, so that the draws of two sides are independent.
    first, second = generator.permutation(qmc.Sobol(2, rng=generator).random(DRAWS)).T
    middle = (processes + 1) // 2
    lower = upper = special.betaincinv(middle, processes - middle + 1, first)
    if processes % 2 == 0:
        upper = lower + (1 - lower) * special.betaincinv(1, processes - middle, second)
    below, above = (effects[:, (place * processes).astype(int)] for place in (lower, upper))
    draws = (below + above) / 2
    draws += WINDOWS * generator.standard_normal(draws.shape)
    centre = np.median(effects, axis=1)
    return centre, draws - centre[:, None]


def _needed(centre: Array, draws: Array, confidence: float) -> Array:
    """Return how many times as far from the centre as the percentile the truth, 0, lay."""
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=1)
    reach = np.where(centre > 0, -low, high)
    needed: Array = np.abs(centre) / np.maximum(reach, 1e-9)
    return needed
