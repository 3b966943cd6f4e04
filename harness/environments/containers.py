"""Runs a worker inside a public image: the engine, the command line, and how the container ends.

A container sees the checkout (read-only), the folders that its commands name, the worker's
variables and, for `cuda`, the GPUs. It has no network, removes itself, and runs as the user. Entry
points of images are skipped, because NVIDIA's print a banner where the protocol answers.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.environments.commands import ask, complaint
from harness.validation import CHECKOUT

# The first that answers is used.
ENGINES = ("docker", "podman", "apptainer")
PROBES = {"docker": ("version", "--format", "{{.Server.Version}}"), "podman": ("info",),
          "apptainer": ("version",)}
GPUS = {"docker": ["--gpus", "all"], "podman": ["--device", "nvidia.com/gpu=all"],
        "apptainer": ["--nv"]}
_SELF = ["--user", f"{os.getuid()}:{os.getgid()}"]
USER = {"docker": _SELF, "podman": [*_SELF, "--userns", "keep-id"], "apptainer": []}
ROOT = {"docker": ["--user", "0:0"], "podman": ["--user", "0:0"], "apptainer": ["--fakeroot"]}
PROBE_SECONDS = 30
# The checkout comes first, then what the image has on PYTHONPATH: Caffe's images find Caffe by it.
BASH = '{setup}PYTHONPATH="$0${{PYTHONPATH:+:$PYTHONPATH}}" exec "$@"'


@dataclass(frozen=True)
class Container:
    """An image ready to run. `image` has its digest, or is the path of apptainer's image file.

    `folders` are those of the host that it sees beside the checkout.
    """

    engine: str
    image: str
    device: str
    setup: str = ""
    root: bool = False
    folders: tuple[str, ...] = ()

    def command(self, name: str, words: Sequence[str], variables: Mapping[str, str],
                folder: Path) -> list[str]:
        """Return the command line that runs `words` in `folder`, in a container called `name`."""
        mounts = dict.fromkeys([str(folder), *self.folders])
        gpus = GPUS[self.engine] if self.device == "cuda" else []
        user = ROOT[self.engine] if self.root else USER[self.engine]
        passed = {key: value for key, value in variables.items() if key != "PYTHONPATH"}
        setup = f"{self.setup} && " if self.setup else ""
        python_path = variables.get("PYTHONPATH", str(CHECKOUT))
        inner = ["-c", BASH.format(setup=setup), python_path, *words]
        checkout = f"{CHECKOUT}:{CHECKOUT}:ro"
        if self.engine == "apptainer":
            binds = [word for each in mounts for word in ("--bind", each)]
            given = [word for key, value in passed.items() for word in ("--env", f"{key}={value}")]
            return ["apptainer", "exec", "--containall", "--cleanenv", "--net", "--network", "none",
                    *user, *gpus, "--bind", checkout, *binds, "--pwd", str(folder), *given,
                    self.image, "bash", *inner]
        binds = [word for each in mounts for word in ("--volume", f"{each}:{each}")]
        given = [word for key, value in {"HOME": "/tmp", **passed}.items()
                 for word in ("--env", f"{key}={value}")]
        return [self.engine, "run", "--rm", "--init", "--interactive", "--name", name,
                "--network", "none", *user, *gpus, "--volume", checkout, *binds,
                "--workdir", str(folder), *given, "--entrypoint", "bash", self.image, *inner]

    def end(self, name: str) -> None:
        """End the container. Apptainer's processes are the worker's own and end with it."""
        if self.engine != "apptainer":
            ask([self.engine, "kill", name], PROBE_SECONDS)

    def to_json(self) -> dict[str, str]:
        """Return what a record says of it: all but the host's folders."""
        return {"engine": self.engine, "image": self.image, "device": self.device}


def engine() -> tuple[str | None, str]:
    """Return the first engine that answers, or None and what is wrong with each."""
    faults = []
    for name in ENGINES:
        if not shutil.which(name):
            continue
        found = ask([name, *PROBES[name]], PROBE_SECONDS)
        if found.returncode == 0:
            return name, ""
        faults.append(f"{name} does not answer ({complaint(found)[:200]})")
    return None, "; ".join(faults) or f"none of {', '.join(ENGINES)} is on PATH"


def pull_command(name: str, image: str, folder: Path) -> list[str]:
    """Return the command that fetches an image; apptainer keeps it as a file in `folder`."""
    if name == "apptainer":
        return ["apptainer", "pull", "--force", str(image_file(image, folder)), f"docker://{image}"]
    return [name, "pull", image]


def pinned(name: str, image: str, folder: Path) -> str | None:
    """Return the image with its digest (apptainer: its file), or None if it is not here."""
    if name == "apptainer":
        file = image_file(image, folder)
        return str(file) if file.exists() else None
    found = ask([name, "image", "inspect", image], PROBE_SECONDS)
    if found.returncode != 0:
        return None
    described = json.loads(found.stdout)[0]
    return next(iter(described.get("RepoDigests") or ()), str(described["Id"]))


def image_file(image: str, folder: Path) -> Path:
    return folder / (image.replace("/", "_").replace(":", "_") + ".sif")
