"""Reads what names a side: a release, a variant, a local build, a wheel, or a recorded campaign."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from harness.environments import recipes, wheels
from harness.environments.recipes import Device
from harness.environments.store import Progress
from harness.environments.wheels import Wheel
from harness.errors import WrongUse, brief
from harness.plan.parts import Tuning
from harness.validation import did_you_mean

NAME = re.compile(r"[\w.+-]{1,40}")
WHEEL = ".whl"
PROBE_SECONDS = 60
# Where a framework's metadata lies tells builds apart, also where a variable adds a folder to the
# path of one Python.
PROBE = """
import json, sys
from importlib.metadata import PackageNotFoundError, distribution
found = None
for name in json.loads(sys.argv[1]):
    try:
        found = str(distribution(name)._path)
        break
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Side:
    """A side of a live comparison: its name in records, and what is trained by what.

    A local build has an `interpreter`, and what no recipe lists a `wheel`; other sides have their
    release's own environment.
    """

    name: str
    spec: str
    tuning: str = ""
    interpreter: Path | None = None
    wheel: Wheel | None = None


@dataclass(frozen=True)
class Source:
    """Where releases come from that no recipe lists: an index, with its pre-releases or without."""

    index: str = ""
    pre: bool = False

    def serves(self, side: Side) -> bool:
        """Return whether this source has a side's release: one not listed, or the newest."""
        if side.interpreter or side.wheel:
            return False
        framework, equals, release = side.spec.partition("==")
        if not equals:
            return self.pre or bool(self.index)
        return bool(self.index) and release not in recipes.load(framework).releases


def is_recorded(word: str) -> bool:
    """Return whether a word names a campaign's folder and not a framework or a local build."""
    if is_local(word) or word.endswith(WHEEL):
        return False
    return os.path.isfile(Path(word) / "campaign.json") or "/" in word


def is_local(word: str) -> bool:
    """Return whether a word is NAME=PATH; `pytorch==2.12.0` is not."""
    name, equals, place = word.partition("=")
    return bool(equals) and not place.startswith("=") and bool(NAME.fullmatch(name))


def read(word: str, framework: str = "") -> Side:
    """Read one side; `framework` is that of local builds. Raises WrongUse."""
    name, _, place = word.partition("=") if is_local(word) else ("", "", word)
    place, tuning = _split_place(place)
    if place.endswith(WHEEL):
        wheel = wheels.of_file(Path(place).expanduser(), framework)
        spec = f"{wheel.framework}=={wheel.release}"
        return Side(name or word.rpartition("/")[2], spec, tuning, wheel=wheel)
    if not name:
        spec, tuning = split(word)
        recipes.load(spec.partition("==")[0])
        return Side(word, spec, tuning)
    if not framework:
        raise WrongUse(f"{brief(word, 100)}: a local build; say what it is, as in --as pytorch")
    recipes.parse(framework)
    if "==" in framework:
        raise WrongUse(f"--as {framework}: name the framework alone; a local build says its "
                       "release")
    return Side(name, framework, tuning, Path(place).expanduser().absolute())


def resolved(side: Side, source: Source, device: Device, progress: Progress) -> Side:
    """Return a side with the wheel that a source has for it, named by its release."""
    framework, _, release = side.spec.partition("==")
    wheel = wheels.resolve(framework, release, device, source.index, source.pre, progress)
    spec = f"{framework}=={wheel.release}"
    return replace(side, name=":".join(filter(None, [spec, side.tuning])), spec=spec, wheel=wheel)


def _split_place(place: str) -> tuple[str, str]:
    """Split a path from the tuning behind it, which is optional."""
    path, _, tuning = place.rpartition(":")
    return (path, tuning) if path and tuning in get_args(Tuning) else (place, "")


def split(word: str) -> tuple[str, str]:
    """Split `pytorch==2.12.0:tuned` into the release and the tuning, which is optional."""
    spec, colon, tuning = word.partition(":")
    if colon and tuning not in get_args(Tuning):
        raise WrongUse(f"{word}: unknown tuning {tuning}{did_you_mean(tuning, get_args(Tuning))}")
    return spec, tuning


def refuse_one_build(a: Side, b: Side) -> None:
    """Raise WrongUse for one build under two names, and for two builds under one.

    One build and one name is a calibration.
    """
    if a.wheel and b.wheel and a.tuning == b.tuning:
        if a.name == b.name and a.wheel != b.wheel:
            raise WrongUse(f"{a.name}: names two wheels; give each its own name, as in "
                           f"before={a.name}")
        if a.name != b.name and a.wheel.url.rpartition("#")[2] == b.wheel.url.rpartition("#")[2]:
            raise WrongUse(f"{a.name} and {b.name} are one wheel: name two")
    if not (a.interpreter and b.interpreter):
        return
    if a.name == b.name and a.interpreter != b.interpreter:
        raise WrongUse(f"{a.name}: names two builds, {a.interpreter} and {b.interpreter}: "
                       "give each its own name")
    if a.name != b.name and a.tuning == b.tuning and _place(a) == _place(b):
        raise WrongUse(f"{a.name} and {b.name} are one build, {_place(a)}: name two; to calibrate, "
                       f"write {a.name}={a.interpreter} twice")


def _place(side: Side) -> str:
    """Return where a local build's metadata lies, or its interpreter where nothing says so."""
    distributions = recipes.load(side.spec).distributions
    try:
        answer = subprocess.run(
            [str(side.interpreter), "-c", PROBE, json.dumps(distributions)], capture_output=True,
            text=True, timeout=PROBE_SECONDS, cwd="/", stdin=subprocess.DEVNULL, check=True)
        return json.loads(answer.stdout) or str(side.interpreter)
    except (OSError, ValueError, subprocess.SubprocessError):
        # `store.existing` says what is wrong with it.
        return str(side.interpreter)
