"""Folders for temporary files. A worker's folder is removed with it, however it ends.

Frameworks leave files behind even if they end well (TensorFlow's /tmp/__autograph_generated_file*,
torchrun's /tmp/torchelastic_*), so each worker has its own folder as TMPDIR. Compilers' caches that
should outlive it stay outside. The next driver removes what a killed one left.
"""

import contextlib
import getpass
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

# A Unix socket's path has room for 107 bytes. Open MPI's own part takes 40 to 50
# (ompi.HOST.USER/pid.NUMBER/...) and the folder's name 16; the rest is for its place.
LONGEST_PLACE = 32
SHORT_PLACE = "/tmp"
PREFIX = "dlbench-"
OWNER = ".driver"  # the file in a folder that says whose it is


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder under the driver's TMPDIR, or under /tmp if that is too long for a socket."""
    place = tempfile.gettempdir()
    short = place if len(os.fsencode(place)) <= LONGEST_PLACE else SHORT_PLACE
    folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=short, ignore_cleanup_errors=True)
    return _signed(folder)


def make_large_folder(place: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Remove abandoned folders; make one for weights, batches, answers and traces.

    It lies in `place`, by default under TMPDIR.
    """
    clear_abandoned(place)
    return _signed(tempfile.TemporaryDirectory(prefix=PREFIX, dir=place))


def clear_abandoned(further: Path | None = None) -> None:
    """Remove folders of drivers that are gone, but not those of other machines and containers."""
    for place in {tempfile.gettempdir(), SHORT_PLACE, *([str(further)] if further else [])}:
        for folder in Path(place).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError, ValueError):
                where, pid = (folder / OWNER).read_text().split("\n")
                if where == _where() and not psutil.pid_exists(int(pid)):
                    shutil.rmtree(folder, ignore_errors=True)


def _signed(folder: tempfile.TemporaryDirectory[str]) -> tempfile.TemporaryDirectory[str]:
    (Path(folder.name) / OWNER).write_text(f"{_where()}\n{os.getpid()}")
    return folder


def _where() -> str:
    """The machine and, on Linux, the namespace within which process numbers have a meaning."""
    namespace = Path("/proc/self/ns/pid")
    return f"{platform.node()} {os.readlink(namespace) if namespace.is_symlink() else ''}"


def variables(folder: str, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables that send temporary files to `folder`, except TorchInductor's cache."""
    default = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    cache = inherited.get("TORCHINDUCTOR_CACHE_DIR") or default
    return {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": cache}
