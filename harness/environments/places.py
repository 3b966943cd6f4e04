"""Says where environments lie: what dlbench builds, its logs, and the Pythons that it brings."""

import os
from pathlib import Path

from harness.validation import CHECKOUT, OWN


def root() -> Path:
    """Return the folder of all environments.

    It is $DLBENCH_ENVS, or `.envs` in the checkout, or `dlbench/envs` in the user's cache.
    """
    own = OWN / (".envs" if OWN == CHECKOUT else "envs")
    return Path(os.environ.get("DLBENCH_ENVS") or own).expanduser().absolute()


def python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def new_log(name: str) -> Path:
    """Return where to write a log; an earlier log of this name is removed."""
    log = root() / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    return log
