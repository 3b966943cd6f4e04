"""Installs a recipe: a virtual environment, its packages by pip, and what its script compiles."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from harness.environments import sizes
from harness.environments.commands import ask, clean_variables, run_logged
from harness.environments.interpreters import Python
from harness.environments.places import new_log, python_in, root
from harness.environments.recipes import Device, Recipe
from harness.errors import WrongUse, brief
from harness.validation import CHECKOUT

INDEX_SECONDS = 3
# Lines of pip's output in an error message.
PIP_LINES = 15
# How the line that says what is wrong begins, the most telling first: that of a placeholder for
# NVIDIA's wheels, a release that is nowhere, pip's last word, and its first.
NO_RELEASE = "ERROR: No matching distribution found for "
COMPLAINTS = ("The installation of ", NO_RELEASE, "ERROR: ", "error: ")
# pip prints this each time that it does not reach an index.
UNREACHED = "after connection broken by"
LONGEST_LINE = 300
# Prints where packages are installed.
SITE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
SITE_SECONDS = 60
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")
# Lines of output worth showing while the user waits.
SHOWN = ("Downloading ", "Building wheel", "Installing collected packages", "installing ", "==> ")

Progress = Callable[[str], None]


class BuildFailed(WrongUse):
    """The environment could not be made; the message has the end of pip's log and its path."""


class NoIndex(BuildFailed):
    """The index that alone has a release does not answer: no failure of the release."""


def install(folder: Path, recipe: Recipe, device: Device, python: Python,
          progress: Progress) -> None:
    """Make a virtual environment in `folder`, install packages and run the script."""
    packages = recipe.packages_for(device, python.version)
    indexes = [index for index in recipe.indexes.get(device, []) if answers(index, progress)]
    log = new_log(folder.name)
    progress(f"{folder.name}: pip install {' '.join(packages)} for {python.path} "
             f"(log: {log})")
    if recipe.system:
        logged([str(CHECKOUT / "scripts" / "system-packages"), *recipe.system], log, progress)
    logged([str(python.path), "-m", "venv", str(folder)], log, progress)
    words = [*PIP_OPTIONS, *(word for index in indexes for word in ("--extra-index-url", index)),
             *packages]
    if size := sizes.describe(python_in(folder), words, clean_variables()):
        progress(f"{folder.name}: {size}")
    try:
        logged([str(python_in(folder)), "-m", "pip", "install", *words], log, progress)
    except BuildFailed as failure:
        silent = set(recipe.indexes.get(device, [])) - set(indexes)
        if not recipe.own_index or not silent:
            raise
        raise NoIndex(f"{', '.join(sorted(silent))} does not answer; pip: {failure}") from None
    if recipe.script:
        compiled = root() / "build" / folder.name
        compiled.mkdir(parents=True, exist_ok=True)
        progress(f"{folder.name}: {recipe.script}")
        script = [str(CHECKOUT / recipe.script), str(python_in(folder)), str(compiled)]
        logged(script, log, progress)


def install_beside(folder: Path, other: Path, packages: list[str], progress: Progress) -> None:
    """Install packages in a new environment in `folder` that sees those of the Python `other`."""
    python, log = python_in(folder), new_log(folder.name)
    progress(f"{folder.name}: pip install {' '.join(packages)} (log: {log})")
    logged([str(other), "-m", "venv", str(folder)], log, progress)
    let_see(python, other)
    logged([str(python), "-m", "pip", "install", *PIP_OPTIONS, *packages], log, progress)


def let_see(python: Path, other: Path) -> None:
    """Let the environment of one interpreter see the packages of another's, behind its own."""
    site_of(python).joinpath("other.pth").write_text(f"{site_of(other)}\n", encoding="utf-8")


def site_of(python: Path) -> Path:
    """Return the folder where an interpreter's packages are installed."""
    said = ask([str(python), "-c", SITE], SITE_SECONDS, clean_variables())
    return Path(said.stdout.strip())


def logged(command: list[str], log: Path, progress: Progress) -> None:
    """Run `command` with its output in `log`. Raises BuildFailed with the last lines."""
    name = log.name.partition("-")[0]

    def tell(line: str) -> None:
        if line.startswith(SHOWN):
            progress(f"  {name}: {line[:120]}")

    code = run_logged(command, log, tell)
    if code != 0:
        lines = log.read_text(encoding="utf-8").splitlines()
        # pip lists all releases that it knows in one line.
        tail = "".join(f"  {brief(line, LONGEST_LINE)}\n" for line in lines[-PIP_LINES:])
        raise BuildFailed(f"{_reason(lines)}`{' '.join(command)}` failed with exit code {code}:\n"
                          f"{tail}Whole log: {log}")


def _reason(lines: list[str]) -> str:
    """Return the line of a log that says what is wrong, with a remedy; records keep this line."""
    # pip says what is wrong first and what follows from it later.
    errors = [line.strip() for opening in COMPLAINTS for line in lines
              if line.strip().startswith(opening)]
    if not errors:
        return ""
    remedy, reason = "", brief(errors[0], LONGEST_LINE)
    if reason.startswith(NO_RELEASE):
        remedy = "; `dlbench frameworks` lists releases"
        if any(UNREACHED in line for line in lines):
            remedy = "; pip reaches no index: check the network and pip's index-url"
    return f"{reason}{remedy}\n"


def answers(index: str, progress: Progress) -> bool:
    """Return whether an index can be reached: pip would try it five times for every package."""
    if index.startswith("file:"):
        return True
    try:
        urllib.request.urlopen(index, timeout=INDEX_SECONDS).close()
        return True
    except (OSError, ValueError, http.client.HTTPException) as error:
        # 403 and 404 for the index's root are answers too.
        if isinstance(error, urllib.error.HTTPError) and error.code < 500:
            return True
        progress(f"{index} does not answer ({error}): pip's own configuration decides "
                 "which build is installed")
        return False
