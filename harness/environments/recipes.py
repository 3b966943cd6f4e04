"""What configs/frameworks/NAME.yaml says of a framework: its runner, its releases, and the recipe of each one's environment.

A recipe is data: a Python version, pip's arguments for each device and, where pip alone is not enough, Debian packages and a
script. `harness.environments.store` carries it out. Words of the command line such as `pytorch==2.12.0` are read here.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from harness.environments import containers
from harness.errors import WrongUse
from harness.validation import CHECKOUT, Strict, did_you_mean, load_yaml

FOLDER = CHECKOUT / "configs" / "frameworks"

Device = Literal["cpu", "cuda"]


class Image(Strict):
    """A public image that holds a release: nothing is installed, and its own Python runs the worker."""

    image: str
    python: str = "python3"  # what the interpreter is called inside
    setup: str = ""  # a line of bash that makes it ready
    root: bool = False  # runs as the image's root, because its Python lies where nobody else may read


class Recipe(Strict):
    """How to make the environment of one release; a device has packages, a container or a reason why it is unsupported."""

    python: str = Field(pattern=r"^\d+\.\d+$")
    packages: dict[Device, list[str]] = {}
    container: dict[Device, Image] = {}
    indexes: dict[Device, list[str]] = {}  # pip's extra indexes, each used only where it answers
    unsupported: dict[Device, str] = {}
    system: list[str] = []  # Debian packages, installed by scripts/system-packages where they are missing
    script: str = ""  # run after pip as `script PYTHON BUILD`; BUILD is a folder that outlives a failed build, to go on from
    variables: dict[str, str] = {}  # of the worker's process; {folder} stands for the environment's folder
    notes: str = ""

    @model_validator(mode="after")
    def _every_device_is_decided(self) -> "Recipe":
        for device in ("cpu", "cuda"):
            ways = [bool(self.packages.get(device)), device in self.container, device in self.unsupported]
            if sum(ways) != 1:
                raise ValueError(f"give exactly one of packages.{device}, container.{device} and unsupported.{device} (the reason)")
        return self

    @model_validator(mode="after")
    def _script_exists(self) -> "Recipe":
        if self.script and not (CHECKOUT / self.script).is_file():
            raise ValueError(f"script: {self.script} is no file of the checkout")
        return self


class Parallel(Strict):
    """How a framework trains on several devices: `ranks` is a process a device, `controller` one process for all of them.

    In `launch` and `variables` {devices} stands for their number; in `launch` {interpreter} for the environment's Python and
    {scratch} for a folder that goes with the ranks.
    """

    kind: Literal["ranks", "controller"]
    program: str = ""  # the launcher of ranks; empty: the interpreter itself, as for `python -m torch.distributed.run`
    launch: list[str] = []  # its arguments, before `runners MODULE`
    failure_report: str = ""  # words of the line with which the launcher begins to report that a rank failed
    rank: str = ""  # the variable in which the launcher tells a process its rank
    strategies: dict[Device, list[str]]  # of gradient aggregation; the first is the default
    reasons: dict[Device, str] = {}  # why a kind of device has no strategies
    variables: dict[str, str] | dict[Device, dict[str, str]] = {}  # of every process; by kind of device where they differ

    def variables_of(self, device: Device, devices: int) -> dict[str, str]:
        """Return the variables of a process that trains on `devices` of this kind."""
        chosen = {name: value for name, value in self.variables.items() if isinstance(value, str)}
        own = self.variables.get(device, {})
        chosen |= own if isinstance(own, dict) else {}
        return {name: value.replace("{devices}", str(devices)) for name, value in chosen.items()}

    @model_validator(mode="after")
    def _ranks_can_be_told_apart(self) -> "Parallel":
        if self.kind == "ranks" and not (self.launch and self.rank):
            raise ValueError("ranks need `launch`, the launcher's arguments, and `rank`, the variable that holds a process's rank")
        return self

    @model_validator(mode="after")
    def _every_device_is_decided(self) -> "Parallel":
        for device in ("cpu", "cuda"):
            if bool(self.strategies.get(device)) == (device in self.reasons):
                raise ValueError(f"give either strategies.{device} or reasons.{device} (why there is none)")
        return self


class Framework(Strict):
    """One file of configs/frameworks. `distributions` are pip's names of the package whose version is the release."""

    title: str
    runner: str
    parallel: Parallel | None = None  # None: it trains on one device
    distributions: list[str] = Field(min_length=1)
    default: str
    releases: dict[str, Recipe]

    @model_validator(mode="after")
    def _default_is_listed(self) -> "Framework":
        if self.default not in self.releases:
            raise ValueError(f"default: {self.default} is not among the releases ({', '.join(self.releases)})")
        return self

    def recipe(self, release: str) -> Recipe:
        """Return the recipe of `release`; an unlisted one is the newest listed recipe with the version in its packages replaced.

        Only requirements that pin exactly the newest listed release (`torch==2.13.0`, `jax==0.10.2 jaxlib==0.10.2`) change;
        where none does, because a script builds the framework, only listed releases can be had: `WrongUse`.
        """
        if release in self.releases:
            return self.releases[release]
        newest = max((each for each, recipe in self.releases.items() if not recipe.container), key=_version_key)
        recipe = self.releases[newest]
        packages = {
            device: [_repin(package, newest, release) for package in listed] for device, listed in recipe.packages.items()
        }
        if packages == recipe.packages:
            raise WrongUse(f"{self.title} {release}: no such release here; there is {', '.join(self.releases)}")
        return recipe.model_copy(update={"packages": packages})


def names(folder: Path = FOLDER) -> list[str]:
    """List the frameworks, one file each."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(name: str, folder: Path = FOLDER) -> Framework:
    """Read the file of one framework; raise `WrongUse` with the closest name where there is none."""
    if name not in names(folder):
        raise WrongUse(f"framework {name}: unknown{did_you_mean(name, names(folder))}")
    return load_yaml(folder / f"{name}.yaml", Framework)


def strategies() -> list[str]:
    """List the strategies of gradient aggregation that any framework has on any kind of device."""
    several = [parallel for name in names() if (parallel := load(name).parallel)]
    return sorted({strategy for parallel in several for listed in parallel.strategies.values() for strategy in listed})


def parse(specification: str, folder: Path = FOLDER) -> tuple[str, str]:
    """Split `pytorch==2.12.0` into framework and release; `pytorch` alone means its default release."""
    name, separator, release = specification.strip().partition("==")
    framework = load(name.strip(), folder)
    if separator and not _is_version(release.strip()):
        raise WrongUse(f"{specification}: a release is written as in {name.strip()}=={framework.default}")
    return name.strip(), release.strip() or framework.default


def unsupported(name: str, release: str, device: Device, folder: Path = FOLDER) -> str | None:
    """Return the reason why `device` cannot run this release here, None where it can."""
    recipe = load(name, folder).recipe(release)
    if device in recipe.container:
        engine, fault = containers.engine()
        return None if engine else f"runs in a container ({recipe.container[device].image}), and no engine is here: {fault}"
    return recipe.unsupported.get(device)


def device_of(kind: str) -> Device:
    """The key of a recipe for a trial's kind of device."""
    return "cuda" if kind == "cuda" else "cpu"


def _repin(package: str, old: str, new: str) -> str:
    requirement, separator, version = package.partition("==")
    return f"{requirement}=={new}" if separator and version == old else package


def _is_version(text: str) -> bool:
    return text[:1].isdigit() and all(character.isalnum() or character in ".+-!" for character in text)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
