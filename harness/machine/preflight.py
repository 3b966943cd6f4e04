"""Stops a campaign on GPUs that others use or that are throttled, unless the user allows it.

Weaker concerns are only recorded. Nobody's process is ever ended.
"""

import time
from collections.abc import Callable
from typing import Any

from harness.errors import WrongUse
from harness.machine import hardware
from harness.machine.hardware import Concern

# A worker that was just stopped, or fresh heat, is gone within seconds.
ATTEMPTS = 4
APART_SECONDS = 1.5


def dirt(described: dict[str, Any], gpus: int) -> list[Concern]:
    """List what spoils numbers on the first `gpus` GPUs that CUDA sees."""
    used = [gpu for gpu in described["gpus"]
            if gpu["cuda_index"] is not None and gpu["cuda_index"] < gpus]
    return [concern for gpu in used for concern in hardware.spoilers(gpu)]


def pass_gate(described: dict[str, Any], gpus: int, allow_dirty: bool,
              look: Callable[[], dict[str, Any]] = hardware.describe,
              wait: Callable[[float], None] = time.sleep) -> list[str]:
    """Return the concerns that are allowed, as text. Raises WrongUse if they are not allowed.

    A concern counts only if it stays over a few attempts.
    """
    found = dirt(described, gpus)
    for _ in range(ATTEMPTS - 1):
        if not found:
            return []
        wait(APART_SECONDS)
        found = dirt(look(), gpus)
    if found and not allow_dirty:
        listed = "; ".join(f"{concern.text}: {concern.remedy}" for concern in found)
        raise WrongUse(f"this machine would spoil the numbers: {listed}; "
                       "or go on with --allow-dirty, which marks every row")
    return [concern.text for concern in found]
