"""Runs one command line of dlbench in this process and judges how it ends.

Nothing may be installed, measured or fetched: whoever tries ends the attempt with a fault.
"""

import contextlib
import io
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest import mock

from harness.cli import main

LONGEST_SECONDS = 2.0  # of this process; others may share its core
LONGEST_MESSAGE = 500  # characters
HUNG_SECONDS = 30
WRONG_USE = 2
CONTROLS = {chr(code) for code in (*range(9), *range(11, 32), 127)}
# Where installing, measuring and fetching begin.
WORK = ("harness.environments.store.build", "harness.environments.install.install",
        "harness.workers.launch.Worker", "harness.workers.launch.Ranks",
        "harness.campaign.session.open_sampler", "harness.data.data_sets._download",
        "harness.environments.containers.engine")


class Hung(BaseException):
    """An attempt takes too long."""


class Began(BaseException):
    """An attempt installs, measures or fetches something."""


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: `code` is its exit code, `fault` what it must not do, or ""."""

    code: int
    message: str
    fault: str


def attempt(words: list[str], codes: tuple[int, ...] = (WRONG_USE,)) -> Ended:
    """Run `dlbench WORDS`; anything but one of `codes` with a short message is a fault."""
    out, err = io.StringIO(), io.StringIO()
    code, fault, began = 0, "", time.process_time()
    with _guarded(words), contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except Hung:
            fault = f"no end within {HUNG_SECONDS} s"
        except Began as work:
            fault = f"it began: {work}"
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"traceback: {type(error).__name__}: {error}"[:200]
            fault += f" ({Path(place.filename).name}:{place.lineno})"
    seconds, message = time.process_time() - began, err.getvalue()
    return Ended(code, message, fault or _fault(code, codes, message, seconds))


def _fault(code: int, codes: tuple[int, ...], message: str, seconds: float) -> str:
    if code not in codes:
        return f"exit code {code}, expected {' or '.join(map(str, codes))}: {message[:200]!r}"
    if code != WRONG_USE:
        return ""
    if seconds > LONGEST_SECONDS:
        return f"{seconds:.1f} s"
    if "Traceback" in message or not message.strip():
        return f"no message: {message[:200]!r}"
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters: {message[:200]!r}"
    if CONTROLS & set(message):
        return f"control characters: {message[:200]!r}"
    return ""


@contextlib.contextmanager
def _guarded(words: list[str]) -> Iterator[None]:
    def hang(number: int, frame: FrameType | None) -> None:
        raise Hung

    def begin(name: str) -> mock.MagicMock:
        return mock.MagicMock(side_effect=Began(name))

    before = signal.signal(signal.SIGALRM, hang)
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.alarm(HUNG_SECONDS)
    with contextlib.ExitStack() as stack:
        for name in WORK:
            stack.enter_context(mock.patch(name, begin(name)))
        stack.enter_context(mock.patch.object(sys, "argv", ["dlbench", *words]))
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            for number, handler in kept.items():
                signal.signal(number, handler)
