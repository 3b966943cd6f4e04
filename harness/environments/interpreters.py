"""Finds a Python for an environment: on PATH, in pyenv, in uv, or brought by dlbench before.

Every candidate is run first. A pyenv shim is on PATH whether or not it works, and Debian's Python
cannot make virtual environments without python3-venv.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.environments.commands import ask, clean_variables, complaint
from harness.environments.places import root
from harness.environments.recipes import DRIVER, spell
from harness.errors import WrongUse, brief

PROBE_SECONDS = 20
MOST_FAULTS = 3
# The base interpreter, not a shim or an activated virtual environment: both may be gone tomorrow.
PROBE = ("import sys, venv, ensurepip; "
         "print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))")


class Python(NamedTuple):
    """An interpreter, and its version as "3.11"."""

    version: str
    path: Path


class NoPython(WrongUse):
    """None of the Pythons that a recipe takes is here; the message ends with the remedy."""

    def __init__(self, versions: Sequence[str], what: str):
        self.what, version = what, versions[0]
        super().__init__(
            f"{what}\nInstall it: `apt-get install python{version} python{version}-venv`, "
            f"`pyenv install {version}` or `uv python install {version}`")


def find(versions: Sequence[str]) -> Python:
    """Return the first of `versions` that is here with venv and pip. Raises NoPython."""
    faults = []
    for version in versions:
        for candidate in candidates(version):
            found, fault = probe(candidate, version)
            if found:
                return Python(version, found)
            faults.append(f"\n  {candidate}: {fault}")
    raise NoPython(versions, f"Python {spell(versions)} is needed and was not found on PATH, "
                             f"in pyenv or in uv.{''.join(faults[:MOST_FAULTS])}")


def candidates(version: str) -> Iterator[Path]:
    """List the places where Python `version` may be, the best first."""
    seen = set()
    own = [Path(sys.executable)] if version == DRIVER else []
    brought = sorted((root() / "pythons").glob(f"*/bin/python{version}"))
    for path in [*_on_path(version), *_in_pyenv(version), *own, *brought, *_in_uv(version)]:
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
    answer = ask([uv, "python", "find", "--no-project", version], PROBE_SECONDS, clean_variables())
    found = answer.stdout.strip() if answer.returncode == 0 else ""
    return [Path(found)] if found else []


def probe(candidate: Path, version: str) -> tuple[Path | None, str]:
    """Run `candidate`. Returns (the interpreter behind it, ""), or (None, what is wrong)."""
    answer = ask([str(candidate), "-c", PROBE], PROBE_SECONDS, clean_variables())
    if answer.returncode != 0:
        # pyenv says first what is wrong, and then lists versions.
        first = answer.stderr.strip().partition("\n")[0]
        return None, first if first.startswith("pyenv") else complaint(answer)
    found, _, executable = answer.stdout.strip().partition(" ")
    if found != version:
        return None, f"is Python {found}"
    return Path(executable), ""


def _patch(version: str) -> int:
    """Return the patch number of "3.11.7". Names such as "3.9-dev" sort last."""
    patch = version.rpartition(".")[2]
    return int(patch) if patch.isdigit() else -1


def named(options: list[str] | None) -> dict[str, Path]:
    """Read `--interpreter` options: `pytorch=PATH`, or for one release `pytorch==2.12.0=PATH`."""
    found: dict[str, Path] = {}
    for option in options or []:
        match = re.fullmatch(r"([^=]+(?:==[^=]+)?)=([^=].*)", option)
        if not match:
            raise WrongUse(f"--interpreter {brief(option, 100)}: write FRAMEWORK=PATH, "
                           "for example pytorch=/usr/bin/python3")
        spec = "==".join(part.strip() for part in match[1].split("=="))
        if spec in found:
            raise WrongUse(f"--interpreter {spec}: given twice; name one")
        found[spec] = Path(match[2])
    for spec in found:
        framework = spec.partition("==")[0]
        if framework != spec and framework in found:
            raise WrongUse(f"--interpreter {framework}: given twice, once for all releases and "
                           f"once for {spec}; name a release in both, or give one")
    return found
