"""Makes and finds the environments that workers run in, under `.envs` or $DLBENCH_ENVS.

Each recipe has a folder whose name ends in a hash of the recipe and its script. `environment.json`
is written last; a folder without it is cleared and made again. A lock a folder lets two builds at
once share one. Only `build/`, where a recipe's script compiles, outlives a failed build. `existing`
describes an interpreter that already has the framework.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.environments import containers, interpreters, probe, recipes, uv
from harness.environments.commands import clean_variables
from harness.environments.containers import Container
from harness.environments.install import BuildFailed, Progress, install, install_beside, logged
from harness.environments.interpreters import NoPython, Python
from harness.environments.places import new_log, python_in, root
from harness.environments.recipes import Device, Image, Recipe
from harness.errors import WrongUse
from harness.validation import CHECKOUT

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Environment:
    """A Python that can run one framework.

    `packages` is its lock ("name==version"), `variables` go to the worker, `origin` is built,
    existing or container. With a `container`, `interpreter` is a path inside the image.
    """

    framework: str
    release: str
    device: str
    interpreter: Path
    key: str
    python: str
    packages: tuple[str, ...]
    variables: dict[str, str]
    origin: str
    container: Container | None = None

    def to_json(self) -> dict[str, Any]:
        container = {"container": self.container.to_json()} if self.container else {}
        fields = {key: value for key, value in asdict(self).items() if key != "container"}
        return {**fields, **container, "interpreter": str(self.interpreter),
                "schema_version": SCHEMA_VERSION}


def build(framework: str, release: str, device: Device, progress: Progress = print,
          recipe: Recipe | None = None) -> Environment:
    """Return the environment of a release, made now if it is absent. Raises BuildFailed.

    A `recipe` stands in for the release's own.
    """
    chosen = recipe or _recipe(framework, release, device)
    if device in chosen.container:
        return _contained(framework, release, device, chosen.container[device], progress)
    if built := find(framework, release, device, chosen):
        return built
    python = choose_python(framework, chosen, progress)
    folder = root() / _key(framework, release, device, chosen, python.version)

    def make() -> Environment:
        install(folder, chosen, device, python, progress)
        return _describe(folder, framework, release, device, chosen)

    # Variables are not part of the key, so they may have changed since.
    return replace(_made(folder, make, progress), variables=_variables(chosen, folder))


def extended(base: Environment, packages: list[str], progress: Progress = print) -> Environment:
    """Return an environment of a few packages that sees another one's too. Raises BuildFailed.

    The other one stays as it is, and nothing of it is installed again.
    """
    folder = root() / f"{base.key}-with-{_digest(packages)}"
    python = python_in(folder)

    def make() -> Environment:
        install_beside(folder, base.interpreter, packages, progress)
        answer = probe.ask([str(python), "-c", probe.PROGRAM], clean_variables())
        return replace(base, interpreter=python, key=folder.name, packages=probe.locked(answer))

    return replace(_made(folder, make, progress), variables=base.variables)


def _made(folder: Path, make: Callable[[], Environment], progress: Progress) -> Environment:
    """Return the environment in `folder`; `make` fills the folder unless it is complete."""
    with _lock(folder.name, progress):
        if found := _read(folder):
            return found
        # A killed build leaves a partial folder.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            environment = make()
            _write(folder, environment)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return environment


def find(framework: str, release: str, device: Device, recipe: Recipe | None = None
         ) -> Environment | None:
    """Return the environment of a release if it is complete, else None. Never builds.

    Of several Pythons it has the one that the recipe prefers. An image is inspected only when it
    is needed. A `recipe` stands in for the release's own.
    """
    recipe = recipe or _recipe(framework, release, device)
    if device in recipe.container:
        return None
    for version in recipe.python:
        folder = root() / _key(framework, release, device, recipe, version)
        if found := _read(folder):
            return replace(found, variables=_variables(recipe, folder))
    return None


def _contained(framework: str, release: str, device: Device, recipe: Image,
               progress: Progress) -> Environment:
    """Fetch a release's image if it is absent and describe its Python. Raises BuildFailed."""
    engine, fault = containers.engine()
    if engine is None:
        raise BuildFailed(f"{framework}=={release} runs in a container, "
                          f"and no engine is here: {fault}")
    images = root() / "images"
    images.mkdir(parents=True, exist_ok=True)
    with _lock(f"image-{framework}-{release}", progress):
        if not containers.pinned(engine, recipe.image, images):
            log = new_log(f"{framework}-{release}-image")
            progress(f"{framework}=={release}: {engine} fetches {recipe.image} (log: {log})")
            logged(containers.pull_command(engine, recipe.image, images), log, progress)
    image = containers.pinned(engine, recipe.image, images)
    if image is None:
        raise BuildFailed(f"{recipe.image}: was fetched and is not there; "
                          f"look with `{engine} image ls`")
    container = Container(engine, image, device, recipe.setup, recipe.root)
    words = [recipe.python, "-c", probe.PROGRAM]
    answer = probe.ask(container.command(f"dlbench-probe-{os.getpid()}", words, {}, images))
    installed = probe.release(recipes.load(framework).distributions, answer["packages"])
    # A framework that the image built from source is in no list.
    if installed and not release.startswith(installed):
        raise BuildFailed(f"{recipe.image}: release {release} was asked for, "
                          f"the image holds {installed}")
    packages = probe.locked(answer)
    key = _key_of(framework, release, device, [image, answer["python"], *packages])
    variables = recipes.load(framework).recipe(release).variables
    return Environment(framework, release, device, Path(recipe.python), key, answer["python"],
                       packages, variables, "container", container)


def sharing(ready: Mapping[str, "Environment | BuildFailed"],
            folder: Path) -> dict[str, "Environment | BuildFailed"]:
    """Let the workers in containers see `folder`, which holds weights, batches and answers."""
    shared: dict[str, Environment | BuildFailed] = dict(ready)
    for name, each in ready.items():
        if isinstance(each, Environment) and each.container:
            folders = (*each.container.folders, str(folder))
            shared[name] = replace(each, container=replace(each.container, folders=folders))
    return shared


def existing(framework: str, interpreter: Path, device: Device) -> Environment:
    """Describe an interpreter that has the framework; its release is what is installed there."""
    described = recipes.load(framework)
    # Programs are asked in other folders. A link stays: behind it a virtual environment is lost.
    interpreter = interpreter.expanduser().absolute()
    try:
        answer = probe.ask([str(interpreter), "-c", probe.PROGRAM])
    except WrongUse as error:
        raise WrongUse(f"the interpreter of {framework}: {error}") from None
    release = probe.release(described.distributions, answer["packages"])
    if release is None:
        raise WrongUse(f"{interpreter}: has none of {', '.join(described.distributions)}; "
                       "install it there, or name another")
    packages = probe.locked(answer)
    key = _key_of(framework, release, device, [str(interpreter), answer["python"], *packages])
    variables = _variables(described.recipe(release), interpreter.parent.parent)
    return Environment(framework, release, device, interpreter, key, answer["python"], packages,
                       variables, "existing")


def list_environments() -> list[Environment]:
    """List the complete environments that were built, by name."""
    found = [_read(path.parent) for path in sorted(root().glob("*/environment.json"))]
    return [environment for environment in found if environment]


def _recipe(framework: str, release: str, device: Device) -> Recipe:
    recipe = recipes.load(framework).recipe(release)
    if reason := recipe.unsupported.get(device):
        raise WrongUse(f"{framework} {release} on {device}: unsupported: {reason}")
    return recipe


def choose_python(framework: str, recipe: Recipe, progress: Progress) -> Python:
    """Take a Python of this framework's other environments, the newest here, or one by uv.

    Releases are then compared under one Python wherever they can be.
    """
    known = {each.python.rpartition(".")[0] for each in list_environments()
             if each.framework == framework}
    versions = sorted(recipe.python, key=lambda version: version not in known)
    try:
        return interpreters.find(versions)
    except NoPython as absent:
        with _lock("uv", progress):
            return uv.bring(versions, root(), absent, progress)


def _key(framework: str, release: str, device: Device, recipe: Recipe, python: str) -> str:
    """Name the folder. Variables and notes do not change what is installed: not in the hash."""
    indexes = recipe.indexes.get(device, [])
    script = [(CHECKOUT / recipe.script).read_text(encoding="utf-8")] if recipe.script else []
    packages = recipe.packages_for(device, python)
    return _key_of(framework, release, device, [
        python, *packages, *indexes, *recipe.system, *script, platform.system(),
        platform.machine()])


def _key_of(framework: str, release: str, device: str, parts: list[str]) -> str:
    return f"{framework}-{release}-{device}-{_digest(parts)}"


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _variables(recipe: Recipe, folder: Path) -> dict[str, str]:
    return {name: value.replace("{folder}", str(folder))
            for name, value in recipe.variables.items()}


def _describe(folder: Path, framework: str, release: str, device: Device,
              recipe: Recipe) -> Environment:
    """Probe the new environment. Raises BuildFailed if it has another release."""
    answer = probe.ask([str(python_in(folder)), "-c", probe.PROGRAM], clean_variables())
    installed = probe.release(recipes.load(framework).distributions, answer["packages"])
    if installed != release.partition("+")[0]:
        raise BuildFailed(f"{folder.name}: release {release} was asked for, {installed} was "
                          "installed; correct the recipe in "
                          f"configs/frameworks/{framework}.yaml")
    return Environment(framework, release, device, python_in(folder), folder.name, answer["python"],
                       probe.locked(answer), _variables(recipe, folder), "built")


def _write(folder: Path, environment: Environment) -> None:
    """Write `environment.json` by an atomic rename. It marks the folder as complete."""
    draft = folder / "environment.json.draft"
    draft.write_text(json.dumps(environment.to_json(), indent=2) + "\n", encoding="utf-8")
    draft.replace(folder / "environment.json")


def _read(folder: Path) -> Environment | None:
    """Read a complete environment; None where it or its interpreter is gone."""
    try:
        stored = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if stored.pop("schema_version") != SCHEMA_VERSION or not python_in(folder).exists():
        return None
    packages = tuple(stored["packages"])
    return Environment(**{**stored, "interpreter": python_in(folder), "packages": packages})


@contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one environment.

    pip inherits the lock: if a build is killed and its pip lives on, the next build waits for it.
    """
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{name}: another process is building it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # The pip of another build that runs beside this one has inherited it too.
            fcntl.flock(file, fcntl.LOCK_UN)
