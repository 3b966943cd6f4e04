"""Reads configs/frameworks/NAME.yaml: a framework's runner, its releases and their recipes.

A recipe is data: a Python version, pip's arguments for each device and, where pip is not enough,
Debian packages and a script. `harness.environments.store` carries it out.
"""

import re
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from harness.environments import containers
from harness.errors import WrongUse, brief
from harness.validation import CHECKOUT, Strict, did_you_mean, load_yaml

FOLDER = CHECKOUT / "configs" / "frameworks"

Device = Literal["cpu", "cuda"]


class Image(Strict):
    """A public image that holds a release; its own Python runs the worker.

    `setup` is a line of bash that makes it ready. `root` runs it as the image's root, for images
    whose Python only root may read.
    """

    image: str
    python: str = "python3"
    setup: str = ""
    root: bool = False


class Recipe(Strict):
    """How to make the environment of one release.

    Each device has packages, a container, or a reason why it is unsupported. pip's extra `indexes`
    are used only where they answer. `system` lists Debian packages. `script` runs after pip as
    `script PYTHON BUILD`, where the folder BUILD outlives a failed build. `variables` are set for
    the worker; {folder} stands for the environment's folder.
    """

    python: str = Field(pattern=r"^\d+\.\d+$")
    packages: dict[Device, list[str]] = {}
    container: dict[Device, Image] = {}
    indexes: dict[Device, list[str]] = {}
    unsupported: dict[Device, str] = {}
    system: list[str] = []
    script: str = ""
    variables: dict[str, str] = {}
    notes: str = ""

    @model_validator(mode="after")
    def _every_device_is_decided(self) -> "Recipe":
        for device in ("cpu", "cuda"):
            ways = [bool(self.packages.get(device)), device in self.container,
                    device in self.unsupported]
            if sum(ways) != 1:
                raise ValueError(f"give exactly one of packages.{device}, container.{device} and "
                                 f"unsupported.{device} (the reason)")
        return self

    @model_validator(mode="after")
    def _script_exists(self) -> "Recipe":
        if self.script and not (CHECKOUT / self.script).is_file():
            raise ValueError(f"script: {self.script} is no file of the checkout")
        return self


class Parallel(Strict):
    """How a framework trains on several devices: one process a device (`ranks`) or one for all.

    `program` launches the ranks (empty: the interpreter, as for `python -m torch.distributed.run`)
    with the arguments `launch`, in which {devices}, {interpreter} and {scratch} are replaced.
    `failure_report` begins the launcher's report of a failed rank; `rank` is the variable that
    holds a process's rank. The first of `strategies` is the default; a device without any has a
    reason. `variables` are set for every process, by kind of device where they differ.
    """

    kind: Literal["ranks", "controller"]
    program: str = ""
    launch: list[str] = []
    failure_report: str = ""
    rank: str = ""
    strategies: dict[Device, list[str]]
    reasons: dict[Device, str] = {}
    variables: dict[str, str] | dict[Device, dict[str, str]] = {}

    def variables_of(self, device: Device, devices: int) -> dict[str, str]:
        """Return the variables of a process that trains on `devices` of this kind."""
        chosen = {name: value for name, value in self.variables.items() if isinstance(value, str)}
        own = self.variables.get(device, {})
        chosen |= own if isinstance(own, dict) else {}
        return {name: value.replace("{devices}", str(devices)) for name, value in chosen.items()}

    @model_validator(mode="after")
    def _ranks_can_be_told_apart(self) -> "Parallel":
        if self.kind == "ranks" and not (self.launch and self.rank):
            raise ValueError("ranks need `launch`, the launcher's arguments, and `rank`, "
                             "the variable that holds a process's rank")
        return self

    @model_validator(mode="after")
    def _every_device_is_decided(self) -> "Parallel":
        for device in ("cpu", "cuda"):
            if bool(self.strategies.get(device)) == (device in self.reasons):
                raise ValueError(f"give either strategies.{device} or reasons.{device} "
                                 "(why there is none)")
        return self


class Framework(Strict):
    """One file of configs/frameworks.

    The release is the version of the first of `distributions` that pip has installed. Without
    `parallel` the framework trains on one device.
    """

    title: str
    runner: str
    parallel: Parallel | None = None
    distributions: list[str] = Field(min_length=1)
    default: str
    releases: dict[str, Recipe]

    @model_validator(mode="after")
    def _default_is_listed(self) -> "Framework":
        if self.default not in self.releases:
            listed = ", ".join(self.releases)
            raise ValueError(f"default: {self.default} is not among the releases ({listed})")
        return self

    def recipe(self, release: str) -> Recipe:
        """Return the recipe of `release`.

        An unlisted release gets the newest listed recipe, with exact pins of that release
        (`torch==2.13.0`) replaced. Raises WrongUse where there are none (a script builds it).
        """
        if release in self.releases:
            return self.releases[release]
        newest = max((each for each, recipe in self.releases.items() if not recipe.container),
                     key=_version_key)
        recipe = self.releases[newest]
        packages = {device: [_repin(package, newest, release) for package in listed]
                    for device, listed in recipe.packages.items()}
        if packages == recipe.packages:
            raise WrongUse(f"{self.title} {release}: no such release here; "
                           f"there is {', '.join(self.releases)}")
        return recipe.model_copy(update={"packages": packages})


def names(folder: Path = FOLDER) -> list[str]:
    """List the frameworks, one file each."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(name: str, folder: Path = FOLDER) -> Framework:
    """Read the file of one framework. Raises WrongUse with the closest name if there is none."""
    if name not in names(folder):
        raise WrongUse(f"framework {brief(name, 60)}: unknown{did_you_mean(name, names(folder))}")
    file = folder / f"{name}.yaml"
    return _load(file, file.stat().st_mtime_ns, file.stat().st_size)


@cache
def _load(file: Path, changed: int, size: int) -> Framework:
    """Read a file that has changed since: each trial of a plan asks for its framework."""
    return load_yaml(file, Framework)


def strategies() -> list[str]:
    """List the aggregation strategies that any framework has on any kind of device."""
    several = [parallel for name in names() if (parallel := load(name).parallel)]
    return sorted({strategy for parallel in several
                   for listed in parallel.strategies.values() for strategy in listed})


def parse(specification: str, folder: Path = FOLDER) -> tuple[str, str]:
    """Split `pytorch==2.12.0` into framework and release; `pytorch` means its default release."""
    name, separator, release = specification.strip().partition("==")
    framework = load(name.strip(), folder)
    if separator and not _is_version(release.strip()):
        raise WrongUse(f"{brief(specification, 60)}: a release is written as in "
                       f"{name.strip()}=={framework.default}")
    return name.strip(), release.strip() or framework.default


def unsupported(name: str, release: str, device: Device, folder: Path = FOLDER) -> str | None:
    """Return the reason why `device` cannot run this release here, None where it can."""
    recipe = load(name, folder).recipe(release)
    if device in recipe.container:
        engine, fault = containers.engine()
        image = recipe.container[device].image
        return None if engine else f"runs in a container ({image}), and no engine is here: {fault}"
    return recipe.unsupported.get(device)


def device_of(kind: str) -> Device:
    """Return the key of a recipe for a trial's kind of device."""
    return "cuda" if kind == "cuda" else "cpu"


def _repin(package: str, old: str, new: str) -> str:
    requirement, separator, version = package.partition("==")
    return f"{requirement}=={new}" if separator and version == old else package


def _is_version(text: str) -> bool:
    return bool(re.fullmatch(r"\d[\w.+!-]{0,40}", text, re.ASCII))


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
