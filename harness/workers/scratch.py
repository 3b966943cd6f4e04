"""Folders for temporary files. A worker's is made before it and gone with it, however it ends.

Frameworks leave files behind even where they end well (TensorFlow's /tmp/__autograph_generated_file*, torchrun's
/tmp/torchelastic_*), so each worker has a folder of its own as TMPDIR. Compilers' caches that are meant to outlive it stay outside.
What a driver leaves that was killed, gigabytes at times, the next one clears away.
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

# A Unix socket's path has room for 107 bytes. Open MPI puts its own 40 to 50 below the folder (ompi.HOST.USER/pid.NUMBER/...),
# the folder's name takes 16: what is left for the place where it stands.
LONGEST_PLACE = 32
SHORT_PLACE = "/tmp"
PREFIX = "dlbench-"
OWNER = ".driver"  # the file in a folder that says whose it is


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder under the driver's TMPDIR, or under /tmp where that would leave no room for a socket's path."""
    place = tempfile.gettempdir()
    short = place if len(os.fsencode(place)) <= LONGEST_PLACE else SHORT_PLACE
    return _signed(tempfile.TemporaryDirectory(prefix=PREFIX, dir=short, ignore_cleanup_errors=True))


def make_large_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for weights, batches, answers and traces under the driver's TMPDIR; first clear abandoned ones away."""
    clear_abandoned()
    return _signed(tempfile.TemporaryDirectory(prefix=PREFIX))


def clear_abandoned() -> None:
    """Remove the folders of drivers that are gone; not those of other machines and containers, whose processes are not seen."""
    for place in {tempfile.gettempdir(), SHORT_PLACE}:
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
    """Return what sends a worker's temporary files to `folder`, and keeps TorchInductor's cache (with Triton's) where it was."""
    cache = inherited.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    return {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": cache}
