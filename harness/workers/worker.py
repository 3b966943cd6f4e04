"""One worker process, seen from the driver: start it, ask it, and return a typed outcome.

A worker answers (`ask` returns its fields), refuses (`Unsupported`) or fails (`Failed`). It never
hangs the driver: each question has a time limit. A worker also ends if it neither sends a heartbeat
nor computes, or if it logs that memory ran out and gives no answer. Only processes started from
here are ended; a token in their environment finds orphans too.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

from harness.environments.containers import Container
from harness.workers import scratch
from harness.workers.answers import Asked
from harness.workers.failures import Failed, Unsupported
from harness.workers.files import tail
from harness.workers.out_of_memory import MemoryMessages
from harness.workers.reading import LONGEST_LINE, check, parse

ROOT = Path(__file__).resolve().parents[2]
SILENCE_SECONDS = 60.0
# For an answer after a message about memory: TensorFlow retries other allocations for 10 s.
SHORTAGE_SECONDS = 20.0
POLL_SECONDS = 0.5
LOG_BYTES = 8000  # of the end of a log, for its last words
WAITING_LINES = 64  # that the driver has not read; then a worker that says more has to wait
KILLING_SECONDS = 30.0  # for killed processes to end; one within a broken GPU driver never does
TOKEN = "DLBENCH_WORKER"
KILLED = "the kernel's out-of-memory killer ended the worker"
DRIVER = "DLBENCH_DRIVER"  # the driver's process, to recognize a worker whose driver is gone
OURS = (TOKEN, "DLBENCH_CORES", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONNOUSERSITE")


@dataclass(frozen=True)
class Timeouts:
    """How many seconds a worker may be silent, and how many it has after it ran out of memory."""

    silence: float = SILENCE_SECONDS
    shortage: float = SHORTAGE_SECONDS
    clock: Callable[[], float] = time.monotonic


DEFAULT_TIMEOUTS = Timeouts()


class Worker:
    """A worker of `module` under `interpreter`; a context manager that leaves no process behind."""

    def __init__(self, interpreter: Path | str, module: str, log: Path,
                 variables: Mapping[str, str] | None = None, cores: str = "",
                 container: Container | None = None, timeouts: Timeouts = DEFAULT_TIMEOUTS):
        self.log = log
        self.timeouts = timeouts
        self.clock = timeouts.clock
        self.token = uuid.uuid4().hex
        self.number = 0
        self.ended = False
        self.last_sign = self.clock()
        self.oom_kills = oom_kills()
        self.container = container
        self.ours = (*(variables or {}), *OURS)
        self.folder = scratch.make_folder()
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**_environment(variables or {}, cores, self.token),
                       **scratch.variables(self.folder.name)}
        with log.open("ab") as log_file:
            self.process = self._start(str(interpreter), module, environment, log_file)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.end()

    def finish(self) -> None:
        """Let the worker close, and end it, unless it has ended already."""
        if self.ended:
            return
        with contextlib.suppress(Failed, Unsupported):
            self.ask("close", limit=10)
        self.end()

    def ask(self, command: str, limit: float, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait at most `limit` seconds for its answer."""
        self.number += 1
        self.last_sign = self.clock()
        self.memory = MemoryMessages(self.log, self.clock)
        message = json.dumps({"id": self.number, "command": command, **arguments})
        asked = Asked(command, arguments, time.monotonic())
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(message + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self._death(command) from None
        return check(self._wait(command, self.clock() + limit, limit), asked)

    def end(self) -> None:
        """End the worker and every process that it started, also those that left its session."""
        if self.ended:
            return
        self.ended = True
        if self.container and self.process.poll() is None:
            self.container.end(self._name())
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        until = time.monotonic() + KILLING_SECONDS
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=KILLING_SECONDS)
        # In a loop, because one may have started another in the meantime.
        while (orphans := processes_with(self.token)) and time.monotonic() < until:
            for orphan in orphans:
                with contextlib.suppress(psutil.NoSuchProcess):
                    orphan.kill()
            psutil.wait_procs(orphans, timeout=POLL_SECONDS)
        if orphans:
            pids = ", ".join(str(orphan.pid) for orphan in orphans)
            with self.log.open("a") as log:
                log.write("dlbench: cannot be ended, so probably within a call of a broken driver: "
                          f"process {pids}\n")
        self._close_wire()
        self.folder.cleanup()

    def _start(self, interpreter: str, module: str, environment: Mapping[str, str],
               log_file: IO[bytes]) -> "subprocess.Popen[str]":
        """Start the worker and a thread that reads its answers."""
        command, variables = [interpreter, "-m", "runners", module], environment
        if self.container:  # then the process is the engine's client
            ours = {name: environment[name] for name in self.ours}
            folder = self.log.parent.absolute()
            command = self.container.command(self._name(), command, ours, folder)
            variables = os.environ
        try:
            process = subprocess.Popen(
                command, cwd=self.log.parent, start_new_session=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log_file, encoding="utf-8", errors="replace",
                env=variables)
        except OSError as error:
            self.folder.cleanup()
            raise Failed("crashed", f"{command[0]} cannot be started: {error.strerror}") from None
        self.lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self.reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self.reader.start()
        return process

    def _close_wire(self) -> None:
        """Close the wire of a worker that has ended."""
        until = time.monotonic() + 5  # nobody holds the pipe any more, so the reader ends
        while self.reader.is_alive() and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):  # it may wait until its lines are read
                self.lines.get(timeout=0.01)
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if not self.reader.is_alive():
            self.process.stdout.close()

    def processes(self) -> set[int]:
        """Return the numbers of the worker's processes on this machine."""
        return {each.pid for each in processes_with(self.token)}

    def _name(self) -> str:
        return f"dlbench-{self.token}"

    def _cpu_seconds(self) -> float:
        """Processor time used so far; in a container, that of all processes with our token."""
        if not self.container:
            return cpu_seconds(self.process.pid)
        return sum(cpu_seconds(process.pid) for process in processes_with(self.token))

    def log_tail(self) -> str:
        """The last three lines of the worker's log that have words, joined."""
        return " | ".join(self._said()[-3:])[-600:]

    def log_note(self) -> str:
        """The end of a failure's reason."""
        return f"log: {self.log_tail() or 'empty'}"

    def _said(self) -> list[str]:
        text = tail(self.log, LOG_BYTES).decode(errors="replace")
        return [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]

    def _wait(self, command: str, deadline: float, limit: float) -> dict[str, Any]:
        # In a container, a search among all processes would take too long here.
        used = 0.0 if self.container else cpu_seconds(self.process.pid)
        while True:
            try:
                line = self.lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                # An orphan may keep the pipe open: the exit counts, not the pipe's end.
                if self.process.poll() is not None and self.lines.empty():
                    raise self._death(command) from None
                self._notice_shortage(command)
                if self.clock() > deadline:
                    raise self._late(command, limit) from None
                if self.clock() - self.last_sign > self.timeouts.silence:
                    now = self._cpu_seconds()
                    if now == used:
                        raise self._silent(f"'{command}'") from None
                    # It is in a long call that holds Python's lock.
                    self.last_sign, used = self.clock(), now
                continue
            if line is None:
                raise self._death(command)
            self.last_sign = self.clock()
            answer = parse(line)
            if answer.get("id") == self.number:
                del answer["id"]
                return answer
            if "beat" not in answer:
                raise Failed("protocol", f"instead of an answer to '{command}' came "
                                         f"{line.strip()[:200]!r}")
            if self.clock() > deadline:
                raise self._late(command, limit)

    def _notice_shortage(self, command: str) -> None:
        """Raise Failed if a part of the worker ran out of memory and the others seem to wait."""
        seconds = self.timeouts.shortage
        if self.memory.first(seconds):
            reason = f"no answer to '{command}' in the {seconds:.0f} s after that"
            raise self._failed("timed_out", reason) from None

    def _silent(self, who: str) -> Failed:
        seconds = self.timeouts.silence
        reason = f"{who}: no heartbeat and no processor time for {seconds:.0f} s"
        return self._failed("timed_out", reason)

    def _late(self, command: str, limit: float, who: str = "") -> Failed:
        reason = f"{who}no answer to '{command}' within {limit:.0f} s; {self.log_note()}"
        return self._failed("timed_out", reason)

    def _failed(self, kind: str, reason: str) -> Failed:
        """Return a failure without an answer: out of memory if the log says so meanwhile."""
        line = self.memory.first()
        return Failed("out_of_memory", f"{line[:300]}; {reason}") if line else Failed(kind, reason)

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            lines = iter(partial(process.stdout.readline, LONGEST_LINE + 1), "")
            put_all(lines, self.lines.put)
        self.lines.put(None)

    def _death(self, command: str) -> Failed:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return Failed("protocol", f"'{command}': the worker closed its answers but lives on; "
                                      f"{self.log_note()}")
        if code == -signal.SIGKILL and oom_kills() > self.oom_kills:
            return Failed("out_of_memory", f"'{command}': {KILLED}")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        reason = f"the worker ended during '{command}' with {how}; {self.log_note()}"
        return self._failed("crashed", reason)


def _environment(variables: Mapping[str, str], cores: str, token: str) -> dict[str, str]:
    """The driver's variables, except those of its own Python, and the worker's."""
    # Images for containers often set PYTHONDONTWRITEBYTECODE. Where nobody compiled a framework's
    # files, each worker would compile all of them: 4 s more of PyTorch, 10 s more of TensorFlow.
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")}
    paths = [str(ROOT), variables.get("PYTHONPATH", "")]
    return {
        **inherited, **variables, TOKEN: token, DRIVER: str(os.getpid()), "DLBENCH_CORES": cores,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
    }


def put_all(lines: Iterable[str], put: Callable[[str], None]) -> None:
    """Pass lines on, up to the first that is too long: what follows it would be its rest."""
    for line in lines:
        put(line)
        if len(line) > LONGEST_LINE:
            break


def processes_with(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN) == token:
                found.append(process)
    return found


def cpu_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def oom_kills() -> int:
    """How many processes the kernel's out-of-memory killer has ended since boot; 0 if unknown."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    counts = dict(line.split() for line in text.splitlines())
    return int(counts.get("oom_kill", 0))
