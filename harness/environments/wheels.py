"""Wheels that no recipe lists: a nightly, a release of another index, a file.

A wheel takes the place of its framework's package in the recipe of the nearest listed release, so
`harness.environments.store` makes its environment like any other.
"""

import hashlib
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from harness.environments import recipes, store
from harness.environments.interpreters import Python
from harness.environments.recipes import Device, Recipe
from harness.environments.store import BuildFailed, Progress
from harness.errors import WrongUse, brief

RESOLVE_SECONDS = 1800  # an index without metadata sends the whole wheel
NEWEST = "99999"  # a release that no recipe lists: its recipe is that of the newest


@dataclass(frozen=True)
class Wheel:
    """A framework's wheel: its release, its address with a hash, and an index for what it needs."""

    framework: str
    release: str
    url: str
    index: str = ""


def of_file(path: Path, framework: str = "") -> Wheel:
    """Describe a wheel on this machine. Raises WrongUse if it is none, or of no framework."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except InvalidWheelFilename:
        raise WrongUse(f"{path}: is not named as a wheel, NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
                       ) from None
    except OSError as error:
        raise WrongUse(f"{path}: cannot be read: {error.strerror}") from None
    known = {each: _names(each) for each in recipes.names()} if not framework else {
        framework: _names(framework)}
    found = next((each for each, names in known.items() if name in names), "")
    if not found:
        raise WrongUse(f"{path}: {name} is no package of {framework or 'any framework'}; known: "
                       f"{', '.join(sorted(set().union(*known.values())))}")
    return Wheel(found, version.public, f"{path.absolute().as_uri()}#sha256={digest}")


def resolve(framework: str, release: str, device: Device, index: str, pre: bool,
            progress: Progress) -> Wheel:
    """Ask an index for a release's wheel, or the newest; `pre` takes pre-releases too.

    `index` is pip's own where it is empty. Raises BuildFailed if pip finds none.
    """
    recipe = recipes.load(framework).recipe(release or NEWEST)
    if reason := recipe.unsupported.get(device):
        raise WrongUse(f"{framework} on {device}: unsupported: {reason}")
    python = store.choose_python(framework, recipe, progress)
    name = _own(framework, recipe.packages_for(device, python.version)).name
    wanted = f"{name}=={release}" if release else name
    progress(f"{wanted}: asking {index or 'the package index'}")
    said = _pip(python, index, "install", "--quiet", "--dry-run", "--no-deps",
                "--only-binary=:all:", "--report", "-", *(["--pre"] if pre else []), wanted)
    [found] = json.loads(said)["install"]
    source = found["download_info"]
    digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    url = source["url"].partition("#")[0] + (f"#sha256={digest}" if digest else "")
    version = found["metadata"]["version"].partition("+")[0]
    return Wheel(framework, version, url, index)


def versions(framework: str, device: Device, index: str, progress: Progress) -> list[str]:
    """List the releases that an index has for a Python that is here. Raises BuildFailed."""
    recipe = recipes.load(framework).recipe(NEWEST)
    python = store.choose_python(framework, recipe, progress)
    name = _own(framework, recipe.packages_for(device, python.version)).name
    progress(f"{name}: asking {index or 'the package index'} for its releases")
    said = _pip(python, index, "index", "versions", name)
    _, _, listed = said.partition("Available versions: ")
    found = (each.strip().partition("+")[0] for each in listed.partition("\n")[0].split(","))
    return list(dict.fromkeys(filter(None, found)))


def recipe_of(wheel: Wheel, device: Device) -> Recipe:
    """Return the recipe that installs a wheel; packages of the same release come as it asks."""
    recipe = recipes.load(wheel.framework).recipe(wheel.release)
    packages = []
    for package in recipe.packages.get(device, []):
        wanted = Requirement(package)
        if canonicalize_name(wanted.name) in _names(wheel.framework):
            extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
            packages.append(f"{wanted.name}{extras} @ {wheel.url}")
        elif str(wanted.specifier) != f"=={wheel.release}":
            packages.append(package)
    indexes = [*recipe.indexes.get(device, []), *([wheel.index] if wheel.index else [])]
    return recipe.model_copy(update={
        "packages": {**recipe.packages, device: packages}, "python": _pythons(wheel, recipe),
        "indexes": {**recipe.indexes, device: indexes}})


def _pythons(wheel: Wheel, recipe: Recipe) -> list[str]:
    """Return the recipe's Pythons that the wheel is for, or all where it does not say."""
    name = wheel.url.partition("#")[0].rpartition("/")[2].replace("%2B", "+")
    tags = {tag.interpreter for tag in parse_wheel_filename(name)[3]}
    return [version for version in recipe.python
            if f"cp{version.replace('.', '')}" in tags] or list(recipe.python)


def _names(framework: str) -> set[str]:
    return {canonicalize_name(name) for name in recipes.load(framework).distributions}


def _own(framework: str, packages: list[str]) -> Requirement:
    """Return the framework's own package among those of a recipe."""
    wanted = map(Requirement, packages)
    return next(each for each in wanted if canonicalize_name(each.name) in _names(framework))


def _pip(python: Python, index: str, *words: str) -> str:
    """Run a Python's pip with an index, if one is named, and return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        _run([str(python.path), "-m", "venv", folder])
        return _run([f"{folder}/bin/python", "-m", "pip", *words,
                     *(["--index-url", index] if index else [])])


def _run(command: list[str]) -> str:
    """Run a command and return what it prints. Raises BuildFailed with its error."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace",
                       stdin=subprocess.DEVNULL, timeout=RESOLVE_SECONDS).stdout
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"`{' '.join(command)}`: no answer within {RESOLVE_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.startswith("ERROR: ")]
        raise BuildFailed(f"{brief(said[-1] if said else error.stderr.strip(), 300)} "
                          f"(`{' '.join(command[1:])}`)") from None
