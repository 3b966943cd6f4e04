"""Reads configs/frameworks/NAME.yaml: a framework's runner, its releases and their recipes.

A recipe is data: a Python version, pip's arguments for each device and, where pip is not enough,
Debian packages and a script. `harness.environments.store` carries it out.
"""

import itertools
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, field_validator, model_validator

from harness.environments import containers
from harness.errors import WrongUse, brief
from harness.validation import CHECKOUT, Strict, did_you_mean, load_yaml

FOLDER = CHECKOUT / "configs" / "frameworks"

Device = Literal["cpu", "cuda"]
Version = Annotated[str, Field(pattern=r"^\d+\.\d+$")]

# The driver's Python. A framework with several defaults takes the newest one that runs on it.
DRIVER = "{}.{}".format(*sys.version_info)


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
    are used only where they answer; what comes from its `own_index` alone is unsupported elsewhere.
    `system` lists Debian packages. `script` runs after pip as
    `script PYTHON BUILD`, where the folder BUILD outlives a failed build. `variables` are set for
    the worker; {folder} stands for the environment's folder.

    `python` is a version, a range ("3.10 to 3.14": the newest first), or a list, the preferred
    first. A package may have a marker, as in `numpy==2.2.6; python_version < "3.11"`.
    """

    python: list[Version] = Field(min_length=1)
    packages: dict[Device, list[str]] = {}
    container: dict[Device, Image] = {}
    indexes: dict[Device, list[str]] = {}
    own_index: bool = False
    unsupported: dict[Device, str] = {}
    system: list[str] = []
    script: str = ""
    variables: dict[str, str] = {}
    notes: str = ""

    def packages_for(self, device: Device, python: str) -> list[str]:
        """Return what pip installs under a Python, "3.11": packages whose markers hold, bare."""
        listed = [package.partition(";") for package in self.packages[device]]
        return [name.strip() for name, _, marker in listed
                if not marker or Marker(marker).evaluate({"python_version": python})]

    @field_validator("python", mode="before")
    @classmethod
    def _write_versions_out(cls, value: Any) -> Any:
        return _versions(value)

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        for device in ("cpu", "cuda"):
            ways = [bool(self.packages.get(device)), device in self.container,
                    device in self.unsupported]
            if sum(ways) != 1:
                raise ValueError(f"give exactly one of packages.{device}, container.{device} and "
                                 f"unsupported.{device} (the reason)")
        for package in itertools.chain(*self.packages.values()):
            try:
                Requirement(package)
            except InvalidRequirement as error:
                raise ValueError(f"packages: {package}: the marker or the name is wrong: "
                                 f"{str(error).splitlines()[0]}") from None
        if self.script and not (CHECKOUT / self.script).is_file():
            raise ValueError(f"script: {self.script} is no file of the checkout")
        return self


class Nodes(Strict):
    """How a framework trains on several nodes: what `srun` starts once on each.

    `launch` stands between the interpreter and `runners`; {nodes}, {local} (devices of a node),
    {ranks}, {head} (the first node's address), {hosts} (names, each with its devices), {port}, {id}
    and {interpreter} are replaced. `program` reaches the other nodes by itself: it runs once, with
    the arguments `launch`. `rank` is the variable that holds a process's rank. `strategies` reach
    other nodes; the first is the default.
    """

    program: str = ""
    launch: list[str]
    rank: str
    strategies: dict[Device, list[str]]


class Parallel(Strict):
    """How a framework trains on several devices: one process a device (`ranks`) or one for all.

    `in_ranks` are the strategies of a controller that have one process a device all the same.
    `program` launches the ranks (empty: the interpreter, as for `python -m torch.distributed.run`)
    with the arguments `launch`, in which {devices}, {interpreter} and {scratch} are replaced.
    `failure_report` begins the launcher's report of a failed rank; `rank` is the variable that
    holds a process's rank. The first of `strategies` is the default; a device without any has a
    reason. `variables` are set for every process, by kind of device where they differ.
    """

    kind: Literal["ranks", "controller"]
    in_ranks: list[str] = []
    program: str = ""
    launch: list[str] = []
    failure_report: str = ""
    rank: str = ""
    strategies: dict[Device, list[str]]
    reasons: dict[Device, str] = {}
    variables: dict[str, str] | dict[Device, dict[str, str]] = {}
    nodes: Nodes | None = None

    def strategies_of(self, device: Device, nodes: int) -> list[str]:
        """Return the strategies between devices of one node, or of several."""
        chosen = self.nodes.strategies if self.nodes and nodes > 1 else self.strategies
        return chosen.get(device, [])

    def has_ranks(self, strategy: str) -> bool:
        """Return whether a strategy has a process for each device of a node."""
        return self.kind == "ranks" or strategy in self.in_ranks

    def variables_of(self, device: Device, devices: int) -> dict[str, str]:
        """Return the variables of a process that trains on `devices` of this kind."""
        chosen = {name: value for name, value in self.variables.items() if isinstance(value, str)}
        own = self.variables.get(device, {})
        chosen |= own if isinstance(own, dict) else {}
        return {name: value.replace("{devices}", str(devices)) for name, value in chosen.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> "Parallel":
        if (self.kind == "ranks" or self.in_ranks) and not (self.launch and self.rank):
            raise ValueError("ranks need `launch`, the launcher's arguments, and `rank`, "
                             "the variable that holds a process's rank")
        for device in ("cpu", "cuda"):
            if bool(self.strategies.get(device)) == (device in self.reasons):
                raise ValueError(f"give either strategies.{device} or reasons.{device} "
                                 "(why there is none)")
        return self


class Framework(Strict):
    """One file of configs/frameworks.

    `runner` trains networks, and `engine` (`module:Class`) runs trained ones; a framework may have
    one alone. The release is the version of the first of `distributions` that pip has installed.
    Without `parallel` the framework trains on one device. `default` may be a list, the newest
    first. `int8_summands` says how an engine with INT8 kernels adds (`runners.int8`). `files` lists
    what pip installs beside a release where its own loader reads image files (`data: files`);
    without it the framework reads none.
    """

    title: str
    runner: str = ""
    engine: str = ""
    int8_summands: Literal["", "both_stored", "first_added"] = ""
    parallel: Parallel | None = None
    files: list[str] | None = None
    distributions: list[str] = Field(min_length=1)
    default: str
    releases: dict[str, Recipe]

    @model_validator(mode="before")
    @classmethod
    def _choose_default(cls, data: Any) -> Any:
        """Choose from several defaults the first for the driver's Python, else the first."""
        defaults = data.get("default") if isinstance(data, dict) else None
        releases = data.get("releases") if isinstance(data, dict) else None
        if not isinstance(defaults, list) or not isinstance(releases, dict):
            return data
        pythons = {name: _versions(recipe.get("python"))
                   for name, recipe in releases.items() if isinstance(recipe, dict)}
        unlisted = [each for each in defaults if each not in pythons]
        fitting = [each for each in defaults if DRIVER in pythons.get(each, ())]
        return {**data, "default": next(iter([*unlisted, *fitting, *defaults]), "")}

    @model_validator(mode="after")
    def _fits_together(self) -> "Framework":
        if not self.runner and not self.engine:
            raise ValueError("give a runner, which trains networks, or an engine, which runs "
                             "trained ones")
        if self.default not in self.releases:
            listed = ", ".join(self.releases)
            raise ValueError(f"default: {self.default} is not among the releases ({listed})")
        return self

    def recipe(self, release: str) -> Recipe:
        """Return the recipe of `release`.

        An unlisted release gets the recipe of the next newer listed one, or the newest, with exact
        pins of that release (`torch==2.13.0`) replaced. Raises WrongUse where there are none (a
        script builds it).
        """
        if release in self.releases:
            return self.releases[release]
        listed = sorted((each for each, recipe in self.releases.items() if not recipe.container),
                        key=_version_key)
        later = (each for each in listed if _version_key(each) >= _version_key(release))
        near = next(later, listed[-1])
        recipe = self.releases[near]
        packages = {device: [_repin(package, near, release) for package in listed]
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
        raise WrongUse(f"unknown framework {brief(name, 60)}{did_you_mean(name, names(folder))}")
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


def _versions(value: Any) -> Any:
    """Write out "3.10 to 3.12" as 3.12, 3.11, 3.10 and one version as a list of it."""
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    found = re.fullmatch(r"3\.(\d+) to 3\.(\d+)", value)
    if not found:
        return [value]
    return [f"3.{minor}" for minor in range(int(found[2]), int(found[1]) - 1, -1)]


def spell(versions: Sequence[str]) -> str:
    """Say which Pythons are meant: "3.9", "3.10 to 3.14"."""
    ordered = sorted(versions, key=_version_key)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _is_version(text: str) -> bool:
    return bool(re.fullmatch(r"\d[\w.+!-]{0,40}", text, re.ASCII))


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
