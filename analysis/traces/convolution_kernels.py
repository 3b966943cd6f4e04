"""From the name of a convolution's kernel to its algorithm and pass, as far as the name says.

The rules are in rules.yaml; the first one that fits decides.
"""

from dataclasses import dataclass

from analysis.traces.kernels import first_match, rules_of

ALGORITHMS, PASSES = rules_of("convolutions"), rules_of("passes")
NOT_SAID = "not said"


@dataclass(frozen=True)
class Family:
    """`algorithm` and `kind` (the pass) are `NOT_SAID` where the name does not tell."""

    algorithm: str
    kind: str


def family(kernel: str) -> Family:
    """Read a kernel's name."""
    return Family(first_match(ALGORITHMS, kernel, NOT_SAID), first_match(PASSES, kernel, NOT_SAID))
