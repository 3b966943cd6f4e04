"""The gate of a campaign: on GPUs that others use or that are throttled nothing is measured, unless the user takes the blame.

Only what certainly spoils numbers stops a campaign; weaker concerns are recorded. Nobody's process is ever ended.
"""

import time
from collections.abc import Callable
from typing import Any

from harness.errors import WrongUse
from harness.machine import hardware
from harness.machine.hardware import Concern

LOOKS = 4  # a worker of a campaign just stopped, or heat just made, is gone within seconds
APART_SECONDS = 1.5


def dirt(described: dict[str, Any], gpus: int) -> list[Concern]:
    """List what spoils numbers on the first `gpus` GPUs that CUDA sees: processes of others, and clocks held down."""
    used = [gpu for gpu in described["gpus"] if gpu["cuda_index"] is not None and gpu["cuda_index"] < gpus]
    return [concern for gpu in used for concern in hardware.spoilers(gpu)]


def pass_gate(described: dict[str, Any], gpus: int, allow_dirty: bool, look: Callable[[], dict[str, Any]] = hardware.describe,
              wait: Callable[[float], None] = time.sleep) -> list[str]:
    """Return what is dirty and allowed, as text; raises WrongUse where something is dirty and not allowed.

    What is found is looked at again a few times before it counts.
    """
    found = dirt(described, gpus)
    for _ in range(LOOKS - 1):
        if not found:
            return []
        wait(APART_SECONDS)
        found = dirt(look(), gpus)
    if found and not allow_dirty:
        listed = "; ".join(f"{concern.text}: {concern.remedy}" for concern in found)
        raise WrongUse(f"this machine would spoil the numbers: {listed}; or go on with --allow-dirty, which marks every row")
    return [concern.text for concern in found]
