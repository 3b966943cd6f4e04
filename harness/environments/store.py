"""Makes and finds the environments that workers run in: one folder a recipe, under `.envs` or $DLBENCH_ENVS.

A folder is complete or absent: `environment.json` is written last, and a folder without it is cleared and made again. The name
ends in a hash of the recipe and its script, so a changed recipe is another environment. A lock a folder lets two builds at once
share one. Only `build/`, where a recipe's script compiles, outlives a failure, so that the next build goes on from there.
An interpreter that already has the framework (a container, a cluster's module) is described by `existing`.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.environments import containers, interpreters, recipes
from harness.environments.containers import Container
from harness.environments.recipes import Device, Image, Recipe
from harness.errors import WrongUse
from harness.validation import CHECKOUT

SCHEMA_VERSION = 1
INDEX_SECONDS = 3
PROBE_SECONDS = 60
PIP_LINES = 15  # of pip's output in an error message
# Lines worth showing while one waits: pip's, apt's, and those of a recipe's script that are meant to be shown.
TOLD = ("Downloading ", "Building wheel", "Installing collected packages", "installing ", "==> ")

# Runs in any Python from 3.6: release and locks come from the packages' own metadata, so the framework is not imported.
PROBE = """
import json, sys
try:
    from importlib.metadata import distributions
    found = [(each.metadata["Name"], each.version) for each in distributions()]
except ImportError:
    import pkg_resources
    found = [(each.project_name, each.version) for each in pkg_resources.working_set]
print(json.dumps({"python": sys.version.split()[0], "packages": sorted(set((n, v) for n, v in found if n))}))
"""

Progress = Callable[[str], None]


class BuildFailed(WrongUse):
    """The environment could not be made; the message has the end of pip's log and the path of the whole."""


@dataclass(frozen=True)
class Environment:
    """A Python that can run one framework: `packages` is its lock ("name==version"), `variables` go to the worker."""

    framework: str
    release: str
    device: str
    interpreter: Path
    key: str
    python: str
    packages: tuple[str, ...]
    variables: dict[str, str]
    origin: str  # "built", "existing" or "container"
    container: Container | None = None  # where `interpreter` is one inside an image

    def to_json(self) -> dict[str, Any]:
        container = {"container": self.container.to_json()} if self.container else {}
        fields = {key: value for key, value in asdict(self).items() if key != "container"}
        return {**fields, **container, "interpreter": str(self.interpreter), "schema_version": SCHEMA_VERSION}


def build(framework: str, release: str, device: Device, progress: Progress = print) -> Environment:
    """Return the environment of a release on "cpu" or "cuda", made now where it is absent; raise `BuildFailed`."""
    recipe = _recipe(framework, release, device)
    if device in recipe.container:
        return _contained(framework, release, device, recipe.container[device], progress)
    folder = root() / _key(framework, release, device, recipe)
    with _lock(folder.name, progress):
        if found := _read(folder):
            return replace(found, variables=_variables(recipe, folder))  # may have changed since: they are not in the key
        shutil.rmtree(folder, ignore_errors=True)  # the half of a build that was killed
        try:
            _make(folder, recipe, device, progress)
            environment = _describe(folder, framework, release, device, recipe)
            _write(folder, environment)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return environment


def find(framework: str, release: str, device: Device) -> Environment | None:
    """Return the environment of a release where it is complete, else None. Never builds."""
    recipe = _recipe(framework, release, device)
    if device in recipe.container:
        return None  # an image is looked at when it is needed
    folder = root() / _key(framework, release, device, recipe)
    found = _read(folder)
    return found and replace(found, variables=_variables(recipe, folder))


def _contained(framework: str, release: str, device: Device, recipe: Image, progress: Progress) -> Environment:
    """Fetch a release's image where it is not here yet and describe the Python inside; raise `BuildFailed`."""
    engine, fault = containers.engine()
    if engine is None:
        raise BuildFailed(f"{framework}=={release} runs in a container, and no engine is here: {fault}")
    images = root() / "images"
    images.mkdir(parents=True, exist_ok=True)
    with _lock(f"image-{framework}-{release}", progress):
        if not containers.pinned(engine, recipe.image, images):
            log = root() / "logs" / f"{framework}-{release}-image.log"
            log.parent.mkdir(exist_ok=True)
            progress(f"{framework}=={release}: {engine} fetches {recipe.image} (log: {log})")
            _logged(containers.pull_command(engine, recipe.image, images), log, progress)
    image = containers.pinned(engine, recipe.image, images)
    if image is None:
        raise BuildFailed(f"{recipe.image}: was fetched and is not there; look with `{engine} image ls`")
    container = Container(engine, image, device, recipe.setup, recipe.root)
    answer = _probe([*container.command(f"dlbench-probe-{os.getpid()}", [recipe.python, "-c", PROBE], {}, images)])
    installed = _installed_release(recipes.load(framework).distributions, answer["packages"])
    if installed and not release.startswith(installed):  # a framework that the image built from source is in no list
        raise BuildFailed(f"{recipe.image}: release {release} was asked for, the image holds {installed}")
    key = f"{framework}-{release}-{device}-{_digest([image, answer['python'], *_lock_lines(answer)])}"
    variables = recipes.load(framework).recipe(release).variables
    return Environment(framework, release, device, Path(recipe.python), key, answer["python"], _lock_lines(answer), variables,
                       "container", container)


def sharing(ready: Mapping[str, "Environment | BuildFailed"], folder: Path) -> dict[str, "Environment | BuildFailed"]:
    """Let the workers in containers see `folder` too: where weights, batches and answers are passed."""
    return {name: replace(each, container=replace(each.container, folders=(*each.container.folders, str(folder))))
            if isinstance(each, Environment) and each.container else each for name, each in ready.items()}


def existing(framework: str, interpreter: Path, device: Device) -> Environment:
    """Describe an interpreter that has the framework already; its release is what is installed there."""
    described = recipes.load(framework)
    answer = _probe([str(interpreter), "-c", PROBE])
    release = _installed_release(described.distributions, answer["packages"])
    if release is None:
        raise WrongUse(f"{interpreter}: has none of {', '.join(described.distributions)}; install it there, or name another")
    packages = _lock_lines(answer)
    digest = _digest([str(interpreter), answer["python"], *packages])
    key = f"{framework}-{release}-{device}-{digest}"
    variables = _variables(described.recipe(release), interpreter.absolute().parent.parent)
    return Environment(framework, release, device, interpreter, key, answer["python"], packages, variables, "existing")


def list_environments() -> list[Environment]:
    """List the complete environments that were built, by name."""
    found = [_read(path.parent) for path in sorted(root().glob("*/environment.json"))]
    return [environment for environment in found if environment]


def root() -> Path:
    """Return the folder of all environments: $DLBENCH_ENVS, or `.envs` in the checkout."""
    return Path(os.environ.get("DLBENCH_ENVS") or CHECKOUT / ".envs").expanduser().absolute()


def _recipe(framework: str, release: str, device: Device) -> Recipe:
    recipe = recipes.load(framework).recipe(release)
    if reason := recipe.unsupported.get(device):
        raise WrongUse(f"{framework} {release} on {device}: unsupported: {reason}")
    return recipe


def _key(framework: str, release: str, device: Device, recipe: Recipe) -> str:
    """Name the folder: variables and notes do not change what is installed, so they are not in the hash."""
    indexes = recipe.indexes.get(device, [])
    script = [(CHECKOUT / recipe.script).read_text(encoding="utf-8")] if recipe.script else []
    digest = _digest([recipe.python, *recipe.packages[device], *indexes, *recipe.system, *script,
                      platform.system(), platform.machine()])
    return f"{framework}-{release}-{device}-{digest}"


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _variables(recipe: Recipe, folder: Path) -> dict[str, str]:
    return {name: value.replace("{folder}", str(folder)) for name, value in recipe.variables.items()}


def _make(folder: Path, recipe: Recipe, device: Device, progress: Progress) -> None:
    """Make a virtual environment in `folder`, install the packages into it and run the script; output goes to `logs/`."""
    interpreter = interpreters.find(recipe.python)
    indexes = [index for index in recipe.indexes.get(device, []) if _answers(index, progress)]
    log = root() / "logs" / f"{folder.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    progress(f"{folder.name}: pip install {' '.join(recipe.packages[device])} for {interpreter} (log: {log})")
    if recipe.system:
        _logged([str(CHECKOUT / "scripts" / "system-packages"), *recipe.system], log, progress)
    _logged([str(interpreter), "-m", "venv", str(folder)], log, progress)
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    for index in indexes:
        options += ["--extra-index-url", index]
    _logged([str(_python(folder)), "-m", "pip", "install", *options, *recipe.packages[device]], log, progress)
    if recipe.script:
        compiled = root() / "build" / folder.name
        compiled.mkdir(parents=True, exist_ok=True)
        progress(f"{folder.name}: {recipe.script}")
        _logged([str(CHECKOUT / recipe.script), str(_python(folder)), str(compiled)], log, progress)


def _logged(command: list[str], log: Path, progress: Progress) -> None:
    """Run `command` with its output in `log`; raise `BuildFailed` with the last lines where it fails."""
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", env=_clean_variables(), close_fds=False) as process,  # inherits the lock, see _lock
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                file.flush()
                if line.strip().startswith(TOLD):
                    progress(f"  {line.strip()[:120]}")
        except BaseException:
            process.kill()
            raise
        code = process.wait()
    if code != 0:
        tail = "".join(f"  {line}\n" for line in log.read_text(encoding="utf-8").splitlines()[-PIP_LINES:])
        raise BuildFailed(f"`{' '.join(command)}` failed with exit code {code}:\n{tail}Whole log: {log}")


def _describe(folder: Path, framework: str, release: str, device: Device, recipe: Recipe) -> Environment:
    """Ask the new environment what it has, and refuse one whose release is another than was asked for."""
    answer = _probe([str(_python(folder)), "-c", PROBE], _clean_variables())
    installed = _installed_release(recipes.load(framework).distributions, answer["packages"])
    if installed != release.partition("+")[0]:
        raise BuildFailed(f"{folder.name}: release {release} was asked for, {installed} was installed; "
                          f"correct the recipe in configs/frameworks/{framework}.yaml")
    return Environment(framework, release, device, _python(folder), folder.name, answer["python"], _lock_lines(answer),
                       _variables(recipe, folder), "built")


def _write(folder: Path, environment: Environment) -> None:
    """Write `environment.json` by an atomic rename: it marks the folder complete."""
    draft = folder / "environment.json.draft"
    draft.write_text(json.dumps(environment.to_json(), indent=2) + "\n", encoding="utf-8")
    draft.replace(folder / "environment.json")


def _read(folder: Path) -> Environment | None:
    """Read a complete environment; None where there is none, or its interpreter is gone (a Python that was uninstalled)."""
    try:
        stored = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if stored.pop("schema_version") != SCHEMA_VERSION or not _python(folder).exists():
        return None
    return Environment(**{**stored, "interpreter": _python(folder), "packages": tuple(stored["packages"])})


def _probe(command: list[str], variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Ask an interpreter for its version and packages; a container's own PYTHONPATH counts unless `variables` leave it out."""
    interpreter = command[0]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, cwd="/",
                                stdin=subprocess.DEVNULL, env=variables, check=True)
        return json.loads(answer.stdout)  # type: ignore[no-any-return]
    except subprocess.CalledProcessError as error:
        raise WrongUse(f"{interpreter}: cannot list its packages: {error.stderr.strip()[-300:]}") from None
    except subprocess.TimeoutExpired:
        raise WrongUse(f"{interpreter}: no answer within {PROBE_SECONDS} s when asked for its packages") from None
    except (OSError, ValueError) as error:
        raise WrongUse(f"{interpreter}: is not a Python interpreter that runs: {error}") from None


def _installed_release(distributions: list[str], packages: list[list[str]]) -> str | None:
    """Version of the first of `distributions` that is installed, without the local part (2.13.0+cpu is release 2.13.0)."""
    versions = {name.lower().replace("_", "-"): version for name, version in packages}
    return next((versions[name].partition("+")[0] for name in distributions if name in versions), None)


def _lock_lines(answer: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}" for name, version in answer["packages"])


def _answers(index: str, progress: Progress) -> bool:
    """Say whether an index can be reached: where it cannot, pip would try it five times for every package."""
    try:
        urllib.request.urlopen(index, timeout=INDEX_SECONDS).close()
    except urllib.error.HTTPError as error:
        reachable, why = error.code < 500, str(error)  # 403 and 404 for the index's root are answers too
    except (OSError, ValueError) as error:
        reachable, why = False, str(error)
    else:
        return True
    if not reachable:
        progress(f"{index} does not answer ({why}): pip's own configuration decides which build is installed")
    return reachable


@contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one environment. It ends with its processes, and pip inherits it: where a build is killed and its pip
    lives on, the next build waits for that pip before it clears the folder."""
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{name}: another process is building it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _clean_variables() -> dict[str, str]:
    """The environment variables without those that lead a foreign Python to this one's packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
