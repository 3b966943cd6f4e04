"""Says where environments lie: what dlbench builds, its logs, and the Pythons that it brings."""

import os
from pathlib import Path

from harness.errors import WrongUse
from harness.validation import CHECKOUT, OWN


def root() -> Path:
    """Return the folder of all environments.

    It is $DLBENCH_ENVS, or `.envs` in the checkout, or `dlbench/envs` in the user's cache. Raises
    WrongUse if it is a file.
    """
    own = OWN / (".envs" if OWN == CHECKOUT else "envs")
    folder = Path(os.environ.get("DLBENCH_ENVS") or own).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise WrongUse(f"{folder}: is a file; name a folder in DLBENCH_ENVS, or unset it")
    return folder


def python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def new_log(name: str) -> Path:
    """Return where to write a log; an earlier log of this name is removed."""
    log = root() / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    return log
