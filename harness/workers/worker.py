"""One worker process, seen from the driver: start it, ask it, and turn whatever happens to it into a typed outcome.

A worker answers (`ask` returns its fields), refuses (`Unsupported`) or fails (`Failed` with a kind and a reason). It never hangs
the driver: each question has a time limit, and a worker that neither beats nor computes, or that wrote of memory that ran out and
says no more (`harness.workers.out_of_memory`), is ended. Only processes that descend from this one are ever ended; they carry a token in their
environment, so orphans are found too.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

from harness.environments.containers import Container
from harness.workers import scratch
from harness.workers.out_of_memory import MemoryMessages

ROOT = Path(__file__).resolve().parents[2]
SILENCE_SECONDS = 60.0
# For an answer after a message about memory: TensorFlow retries other allocations for 10 s.
SHORTAGE_SECONDS = 20.0
POLL_SECONDS = 0.5
KILLING_SECONDS = 30.0  # for killed processes to be gone; one that waits within a broken driver never is, and must not hang ours
TOKEN = "DLBENCH_WORKER"
OURS = (TOKEN, "DLBENCH_CORES", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONNOUSERSITE")  # set for every worker
DRIVER = "DLBENCH_DRIVER"  # the driver's process, so that a worker whose driver is gone can be known


class Unsupported(Exception):
    """The worker's framework cannot do what was asked; the message is its reason."""


class Failed(Exception):
    """The worker failed: `kind` is different, out_of_memory, crashed, timed_out, diverged or protocol.

    One that has `answered` so lives on: it has neither died nor hung.
    """

    def __init__(self, kind: str, reason: str, answered: bool = False):
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason
        self.answered = answered


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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.end()

    def finish(self) -> None:
        """Let the worker close, and end it; nothing is left to do where it has ended."""
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
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(message + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self._death(command) from None
        answer = self._wait(command, self.clock() + limit, limit)
        status = answer.pop("status", None)
        if status == "unsupported":
            raise Unsupported(answer["reason"])
        if status == "failed":
            raise Failed(answer["kind"], answer["reason"], answered=True)
        if status != "ok":
            raise Failed("protocol", f"answer to '{command}' has status {status!r}")
        return answer

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
        while (orphans := processes_with(self.token)) and time.monotonic() < until:  # one may have started another meanwhile
            for orphan in orphans:
                with contextlib.suppress(psutil.NoSuchProcess):
                    orphan.kill()
            psutil.wait_procs(orphans, timeout=POLL_SECONDS)
        if orphans:
            pids = ", ".join(str(orphan.pid) for orphan in orphans)
            with self.log.open("a") as log:
                log.write(f"dlbench: cannot be ended, so probably within a call of a broken driver: process {pids}\n")
        self._close_wire()
        self.folder.cleanup()

    def _start(self, interpreter: str, module: str, environment: Mapping[str, str], log_file: IO[bytes]) -> "subprocess.Popen[str]":
        """Start the worker with a thread that reads its answers."""
        command, variables = self._wrapped([interpreter, "-m", "runners", module], environment)
        process = subprocess.Popen(command, cwd=self.log.parent, start_new_session=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=log_file, text=True, env=variables)
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self.reader.start()
        return process

    def _wrapped(self, command: list[str], environment: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
        """The command line and variables of the process to start: of the engine's client where the worker is in a container."""
        if not self.container:
            return command, environment
        ours = {name: environment[name] for name in self.ours}
        return self.container.command(self._name(), command, ours, self.log.parent.absolute()), {**os.environ}

    def _close_wire(self) -> None:
        """Let go of the wire of a worker that has ended."""
        self.reader.join(timeout=5)  # the pipe's holders are gone, so it has come to its end
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if not self.reader.is_alive():
            self.process.stdout.close()

    def _name(self) -> str:
        return f"dlbench-{self.token}"

    def _cpu_seconds(self) -> float:
        """Processor time used so far; in a container the engine's client computes nothing, so of all that carry our token."""
        if not self.container:
            return cpu_seconds(self.process.pid)
        return sum(cpu_seconds(process.pid) for process in processes_with(self.token))

    def log_tail(self, lines: int = 3) -> str:
        """The last lines of the worker's log that say something, joined to one."""
        return " | ".join(self._said()[-lines:])[-600:]

    def _said(self) -> list[str]:
        text = self.log.read_bytes()[-8000:].decode(errors="replace")
        return [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]  # and is no rule of ---- or ====

    def _wait(self, command: str, deadline: float, limit: float) -> dict[str, Any]:
        used = 0.0 if self.container else cpu_seconds(self.process.pid)  # a search among all processes takes too long here
        while True:
            try:
                line = self.lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if self.process.poll() is not None and self.lines.empty():
                    raise self._death(command) from None  # an orphan may keep the pipe open: the exit counts, not its end
                self._notice_shortage(command)
                if self.clock() > deadline:
                    raise self._late(command, limit) from None
                if self.clock() - self.last_sign > self.timeouts.silence:
                    now = self._cpu_seconds()
                    if now == used:
                        raise self._failed("timed_out", f"'{command}': no heartbeat and no processor time for {self.timeouts.silence:.0f} s"
                                           ) from None
                    self.last_sign, used = self.clock(), now  # a long call that holds Python's lock: alive
                continue
            if line is None:
                raise self._death(command)
            self.last_sign = self.clock()
            answer = parse(line)
            if answer.get("id") == self.number:
                del answer["id"]
                return answer
            if "beat" not in answer:
                raise Failed("protocol", f"instead of an answer to '{command}' came {line.strip()[:200]!r}")
            if self.clock() > deadline:
                raise self._late(command, limit)

    def _notice_shortage(self, command: str) -> None:
        """Raise Failed where a part of the worker has run out of memory and the others seem to wait for it."""
        if self.memory.first(self.timeouts.shortage):
            raise self._failed("timed_out", f"no answer to '{command}' in the {self.timeouts.shortage:.0f} s after that") from None

    def _late(self, command: str, limit: float) -> Failed:
        return self._failed("timed_out", f"no answer to '{command}' within {limit:.0f} s; log: {self.log_tail()}")

    def _failed(self, kind: str, reason: str) -> Failed:
        """The failure of a worker that gave no answer: for want of memory where it has written so since it was asked."""
        line = self.memory.first()
        return Failed("out_of_memory", f"{line[:300]}; {reason}") if line else Failed(kind, reason)

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                self.lines.put(line)
        self.lines.put(None)

    def _death(self, command: str) -> Failed:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return Failed("protocol", f"'{command}': the worker closed its answers but lives on; log: {self.log_tail()}")
        if code == -signal.SIGKILL and oom_kills() > self.oom_kills:
            return Failed("out_of_memory", f"'{command}': the kernel's out-of-memory killer ended the worker")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return self._failed("crashed", f"the worker ended during '{command}' with {how}; log: {self.log_tail()}")


def _environment(variables: Mapping[str, str], cores: str, token: str) -> dict[str, str]:
    """The driver's variables and the worker's own; of PYTHONPATH and PYTHONHOME only the worker's, whose Python is another."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    paths = [str(ROOT), variables.get("PYTHONPATH", "")]
    return {
        **inherited, **variables, TOKEN: token, DRIVER: str(os.getpid()), "DLBENCH_CORES": cores,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1",
    }


def parse(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Failed("protocol", f"not a line of JSON: {line.strip()[:200]!r}")
    return answer


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
    """How many processes the kernel's out-of-memory killer has ended since boot (0 where /proc/vmstat does not say)."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)
