"""Runs other programs, such as pip and uv, and waits for their output."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# The programs of `run_logged` that run now, and whether more may start.
_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()
_lock = threading.Lock()


def clean_variables() -> dict[str, str]:
    """Return the variables without those that lead a foreign Python to our packages."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME")}


def ask(command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None
        ) -> subprocess.CompletedProcess[str]:
    """Run a command; if it cannot run or takes too long, it "fails" and its errors say so."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                              env=variables, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def complaint(failed: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a failed command's errors, or its exit code if there is none."""
    lines = failed.stderr.strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {failed.returncode}"


def run_logged(command: Sequence[str], log: Path, tell: Callable[[str], None]) -> int:
    """Run a command, with its output in `log` too; tell each line. Returns the exit code.

    The program inherits locks (see `store._lock`): hence close_fds=False.
    """
    with log.open("a", encoding="utf-8") as file:
        with _lock:
            if _stopped.is_set():
                return 1
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", env=clean_variables(),
                close_fds=False)
            _running.add(process)
        try:
            with process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        file.write(line)
                        file.flush()
                        tell(line.strip())
                except BaseException:
                    process.kill()
                    raise
        finally:
            with _lock:
                _running.discard(process)
    return process.returncode


@contextmanager
def stopping() -> Iterator[Callable[[], None]]:
    """Give a function that ends all programs of `run_logged` and lets no other one start."""
    def stop() -> None:
        with _lock:
            _stopped.set()
            for process in _running:
                process.kill()

    try:
        yield stop
    finally:
        _stopped.clear()
