"""Finds a Python X.Y for an environment: `pythonX.Y` on PATH, then pyenv's versions, then uv's.

Every candidate is run first. A pyenv shim is on PATH whether or not it works, and Debian's Python
cannot make virtual environments without python3-venv.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.errors import WrongUse, brief

PROBE_SECONDS = 20
# The base interpreter, not a shim or an activated virtual environment: both may be gone tomorrow.
PROBE = ("import sys, venv, ensurepip; "
         "print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))")


def find(version: str) -> Path:
    """Return a Python `version` ("3.11") that has venv and pip. Raises WrongUse with a remedy."""
    faults = []
    for candidate in candidates(version):
        found, fault = _probe(candidate, version)
        if found:
            return found
        faults.append(f"\n  {candidate}: {fault}")
    raise WrongUse(
        f"Python {version} is needed and was not found on PATH, in pyenv or in uv."
        f"{''.join(faults)}\n"
        f"Install it with `uv python install {version}`, `pyenv install {version}`, "
        f"or `apt-get install python{version} python{version}-venv` "
        "where the system has that version."
    )


def candidates(version: str) -> Iterator[Path]:
    """List the places where Python `version` may be, the best first."""
    seen = set()
    for path in [*_on_path(version), *_in_pyenv(version), *_in_uv(version)]:
        if path not in seen and os.access(path, os.X_OK):
            seen.add(path)
            yield path


def _on_path(version: str) -> list[Path]:
    # Every folder of PATH, since a broken shim in one may hide a good Python in the next.
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [Path(folder) / f"python{version}" for folder in folders if folder]


def _in_pyenv(version: str) -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = (root / "versions").glob(f"{version}.*/bin/python{version}")
    return sorted(found, key=lambda path: _patch(path.parts[-3]), reverse=True)


def _in_uv(version: str) -> list[Path]:
    uv = shutil.which("uv")
    if not uv:
        return []
    answer = _run([uv, "python", "find", "--no-project", version])
    found = answer.stdout.strip() if answer and answer.returncode == 0 else ""
    return [Path(found)] if found else []


def _probe(candidate: Path, version: str) -> tuple[Path | None, str]:
    """Run `candidate`. Returns (the interpreter behind it, ""), or (None, what is wrong)."""
    answer = _run([str(candidate), "-c", PROBE])
    if answer is None:
        return None, "does not run"
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return None, lines[0] if lines[0].startswith("pyenv") else lines[-1]
    found, _, executable = answer.stdout.strip().partition(" ")
    if found != version:
        return None, f"is Python {found}"
    return Path(executable), ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS,
                              env=variables, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _patch(version: str) -> int:
    """Return the patch number of "3.11.7". Names such as "3.9-dev" sort last."""
    patch = version.rpartition(".")[2]
    return int(patch) if patch.isdigit() else -1


def named(options: list[str] | None) -> dict[str, Path]:
    """Read `--interpreter` options: `pytorch=PATH`, or for one release `pytorch==2.12.0=PATH`."""
    found = {}
    for option in options or []:
        match = re.fullmatch(r"([^=]+(?:==[^=]+)?)=([^=].*)", option)
        if not match:
            raise WrongUse(f"--interpreter {brief(option, 100)}: write FRAMEWORK=PATH, "
                           "for example pytorch=/usr/bin/python3")
        if match[1] in found:
            raise WrongUse(f"--interpreter {match[1]}: given twice; name one")
        found[match[1]] = Path(match[2])
    return found
