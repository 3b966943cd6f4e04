"""Says where environments lie: what dlbench builds, and the Pythons that it brings."""

import os
from pathlib import Path

from harness.validation import CHECKOUT, OWN


def root() -> Path:
    """Return the folder of all environments.

    It is $DLBENCH_ENVS, or `.envs` in the checkout, or `dlbench/envs` in the user's cache.
    """
    own = OWN / (".envs" if OWN == CHECKOUT else "envs")
    return Path(os.environ.get("DLBENCH_ENVS") or own).expanduser().absolute()
