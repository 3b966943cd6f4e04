"""Makes and locks the folder that a campaign or study is measured into, before anything starts.

The kernel releases the lock when its holder dies. The file of the lock names the holder; it is no
record, so `analysis.records.manifest` leaves it out.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from analysis.records.manifest import LOCK
from harness.errors import WrongUse, brief

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a limit of the shell
OPTIONS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder` for one driver while the block runs.

    Raises WrongUse if it cannot be made or written, if another driver holds it, or if a file in it
    can no longer be written. A folder made here that stays empty is removed.
    """
    with writing(folder), contextlib.ExitStack() as stack:
        stack.callback(_remove_empty, _make(folder))
        stack.enter_context(_locked(folder))
        yield


@contextlib.contextmanager
def writing(folder: Path, measures: bool = True) -> Iterator[None]:
    """Raise WrongUse if the block cannot write into `folder`; what it measures can be resumed."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or folder)
        if error.errno in NO_ROOM or not place.startswith(str(folder)):
            raise
        resume = (", or mend it and go on with --resume, which keeps what was finished"
                  if measures else "")
        raise WrongUse(f"{brief(place, 200)} cannot be written ({error.strerror}): "
                       f"name another folder with --out{resume}") from None


def is_held(folder: Path) -> bool:
    """Return whether a driver measures into `folder`; one on another machine counts as alive."""
    try:
        holder = (folder / LOCK).read_text(errors="replace")
    except OSError:
        return False
    found = re.fullmatch(r"process (\d+) on (\S+)", holder.strip())
    if not found or found[2] != socket.gethostname():
        return True
    return Path(f"/proc/{found[1]}").exists()


def probe(folder: Path) -> None:
    """Raise WrongUse if `folder` cannot be made and written; leave an existing one as it is."""
    if folder.is_file():
        raise WrongUse(f"{brief(str(folder), 200)}: is a file; name a folder with --out")
    with writing(folder, measures=False), contextlib.ExitStack() as stack:
        stack.callback(_remove_empty, _make(folder))
        with tempfile.TemporaryFile(dir=folder):
            pass


def probe_file(option: str, file: Path) -> None:
    """Raise WrongUse, naming `option`, if `file` cannot be written after the measurements."""
    there = os.path.lexists(file)
    try:
        if there and not file.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        file.open("a").close()
        if not there:
            file.unlink()
    except OSError as error:
        raise WrongUse(f"{option} {file}: cannot be written ({error.strerror}); name another file"
                       ) from None


def _make(folder: Path) -> list[Path]:
    """Make a folder; return what was missing of it, the innermost first."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    return missing


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path, lock = folder / LOCK, None
    # The holder before may have removed the file in between: then it is made anew.
    while lock is None or not _is_same(lock, path):
        if lock is not None:
            os.close(lock)
        lock = os.open(path, OPTIONS, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(lock)
            raise WrongUse(f"{brief(str(folder), 200)}: {holder} measures into it: wait until it "
                           "ends, or name another folder with --out") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(lock)


def _is_same(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.lstat())
    except FileNotFoundError:
        return False
