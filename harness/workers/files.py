"""Opens what workers write: regular files only, through no link, and within a limit of size.

A worker may leave anything under the name it was given: nothing, a folder, a link to another file,
a FIFO that would keep its reader waiting. Each is Failed with the kind `protocol`.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, cast
from uuid import uuid4

import numpy as np

from harness.data import arrays
from harness.workers.failures import Failed

COPIED = 2**22  # bytes at a time
# O_NONBLOCK: opening a FIFO waits for no writer. It changes nothing for a regular file.
SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AnswerFolder:
    """A new folder of one worker's files, removed with them; a context manager.

    Files are found through a descriptor, so a worker that puts another folder in its place gains
    nothing.
    """

    def __init__(self, inside: Path):
        self.folder = inside / f"answers-{uuid4().hex}"

    def __enter__(self) -> "AnswerFolder":
        self.folder.mkdir()
        self.descriptor = os.open(self.folder, os.O_DIRECTORY | SAFELY)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self.descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> Path:
        """Return where a worker is to write a file."""
        return self.folder / name

    @contextmanager
    def open(self, name: str, most: int) -> Iterator[BinaryIO]:
        """Open a copy of a file of at most `most` bytes. Raises Failed.

        It has no name, so a worker that cuts its file later ends no driver that has mapped it.
        """
        try:
            descriptor = os.open(name, SAFELY, dir_fd=self.descriptor)
        except OSError as error:
            raise Failed("protocol", f"the file of answers: {error.strerror}") from None
        if fault := fault_of(os.fstat(descriptor), most):
            os.close(descriptor)
            raise Failed("protocol", f"the file of answers: {fault}")
        with os.fdopen(descriptor, "rb") as file, TemporaryFile(dir=self.folder) as own:
            while piece := file.read(COPIED):
                own.write(piece)
                if own.tell() > most:
                    raise Failed("protocol", f"the file of answers: grew beyond {most:,} bytes")
            own.seek(0)
            yield cast(BinaryIO, own)


def arrays_in(file: BinaryIO) -> dict[str, np.ndarray]:
    """Map the arrays of an open file that a worker wrote. Raises Failed."""
    try:
        return arrays.mapped_from(file)
    except Exception as error:  # whatever zipfile and NumPy make of a broken file
        raise Failed("protocol", "the file of answers cannot be read: "
                                 f"{type(error).__name__}: {error}") from None


def fault_of(found: os.stat_result, most: int) -> str:
    """Say what is wrong with an open file; empty if nothing is."""
    if not stat.S_ISREG(found.st_mode):
        return f"came a {kind_of(found.st_mode)}, expected a regular file"
    if found.st_nlink > 1:
        return "it is a link to a file that has another name too"
    if found.st_size > most:
        return f"came {found.st_size:,} bytes, expected at most {most:,}"
    return ""


def kind_of(mode: int) -> str:
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def tail(file: Path, size: int) -> bytes:
    """Return the last bytes of a file; none if it is not a regular file or cannot be read."""
    return read_from(file, -size, size)


def read_from(file: Path, place: int, size: int) -> bytes:
    """Return at most `size` bytes from `place` on, or before the end if `place` is negative."""
    with contextlib.suppress(OSError):
        descriptor = os.open(file, SAFELY)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            return b""
        with os.fdopen(descriptor, "rb") as opened:
            opened.seek(max(0, found.st_size + place) if place < 0 else place)
            return opened.read(size)
    return b""
