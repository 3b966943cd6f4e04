"""Brings a Python by uv, where the machine has none that a recipe takes.

Everything lies in the folder of the environments: uv itself, which pip installs there unless it is
on PATH, and the Pythons. `UV_PYTHON_INSTALL_MIRROR` names another place to fetch Pythons from.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.environments.commands import ask, complaint
from harness.environments.interpreters import NoPython, Python, find
from harness.environments.recipes import spell
from harness.errors import brief

MINUTES = 10


def bring(versions: Sequence[str], folder: Path, absent: NoPython,
          progress: Callable[[str], None]) -> Python:
    """Fetch the first of `versions` into `folder`. Raises NoPython, `absent` with why it cannot."""
    version = versions[0]
    progress(f"no Python {spell(versions)} is here: uv fetches Python {version} into "
             f"{folder / 'pythons'}")
    uv = shutil.which("uv") or str(folder / "uv" / "bin" / "uv")
    fault = ""
    if not Path(uv).exists():
        fault = _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-input",
                      "--disable-pip-version-check", "--target", str(folder / "uv"), "uv"])
    # uv would link python3.12 into ~/.local/bin too.
    fault = fault or _run([uv, "python", "install", version], UV_PYTHON_INSTALL_BIN="0",
                          UV_PYTHON_INSTALL_DIR=str(folder / "pythons"))
    if not fault:
        return find([version])
    raise NoPython(versions, f"{absent.what}\nuv could not bring Python {version}: "
                             f"{brief(fault, 120)}; UV_PYTHON_INSTALL_MIRROR names a mirror")


def _run(command: list[str], **variables: str) -> str:
    """Run `command`; return "" or the last line of what it says is wrong."""
    done = ask(command, 60 * MINUTES, {**os.environ, **variables})
    return complaint(done) if done.returncode else ""
