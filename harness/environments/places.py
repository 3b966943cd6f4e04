"""Says where environments lie: what dlbench builds, and the Pythons that it brings."""

import os
from pathlib import Path

from harness.validation import CHECKOUT


def root() -> Path:
    """Return the folder of all environments: $DLBENCH_ENVS, or `.envs` in the checkout."""
    return Path(os.environ.get("DLBENCH_ENVS") or CHECKOUT / ".envs").expanduser().absolute()
