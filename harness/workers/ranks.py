"""The ranks of a trial with a process for each device, seen from the driver as one worker.

The framework's own launcher starts them, so ranks speak on a socket: a Unix socket on one node, TCP
on several, whose clocks have nothing in common. Each command goes to all ranks, and their answers
become one: a window lasts from the first start to the last stop, a loss is the mean. A rank that
dies, hangs or disagrees is one `Failed` that names it; if one refuses, all do.
"""

import contextlib
import hmac
import json
import queue
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from harness.cluster import allocation
from harness.environments.recipes import Parallel
from harness.workers import reading
from harness.workers.answers import Asked
from harness.workers.failures import Failed, Unsupported
from harness.workers.out_of_memory import MemoryMessages
from harness.workers.worker import (
    KILLED,
    POLL_SECONDS,
    WAITING_LINES,
    Worker,
    cpu_seconds,
    oom_kills,
    put_all,
)

SECRET_SECONDS = 10.0  # for a rank of another node to show the secret
GRACE_SECONDS = 1.0  # until the death that made another rank fail is seen
LAST_WORDS_SECONDS = 3.0  # for a launcher to log why a rank ended, or to end after its ranks
CLEARING_SECONDS = 10.0  # for a launcher to clean up: 1 to 2.3 s, more than 3 on a busy machine


@dataclass(frozen=True)
class Meeting:
    """Where ranks of several nodes find one another: a port of the first node."""

    names: list[str]
    addresses: list[str]
    port: int

    def variables(self) -> dict[str, str]:
        return {"DLBENCH_NODES": ",".join(self.addresses), "DLBENCH_PORT": str(self.port)}


@dataclass(frozen=True)
class Launch:
    """A launcher and the number of ranks it starts."""

    parallel: Parallel
    ranks: int
    nodes: int = 1
    devices: int = 0

    @property
    def rank(self) -> str:
        """The variable that holds a process's rank."""
        several = self.parallel.nodes if self.nodes > 1 else None
        return several.rank if several else self.parallel.rank

    def command_on_nodes(self, interpreter: str, module: str, meeting: Meeting) -> list[str]:
        """Return the command line that starts the ranks on every node."""
        several, local = self.parallel.nodes, self.devices // self.nodes
        assert several
        meaning = {"nodes": self.nodes, "local": local, "ranks": self.ranks,
                   "head": meeting.addresses[0], "port": meeting.port, "id": meeting.port,
                   "hosts": ",".join(f"{name}:{local}" for name in meeting.names),
                   "interpreter": interpreter}
        words = [word.format(**meaning) for word in several.launch]
        first = ([several.program] if several.program
                 else [*allocation.step(self.nodes), interpreter])
        return [*first, *words, "runners", module]

    def command(self, interpreter: str, module: str, scratch: str) -> list[str]:
        """Return the launcher's command line; its own files may lie in `scratch`."""
        environment = str(Path(interpreter).parent.parent)
        program = self.parallel.program.replace("{folder}", environment) or interpreter
        words = [program, *self.parallel.launch, "runners", module]
        meaning = {"{devices}": str(self.ranks), "{interpreter}": interpreter, "{scratch}": scratch}
        for name, value in meaning.items():
            words = [word.replace(name, value) for word in words]
        return words


class Ranks(Worker):
    """The ranks of `module`; a context manager that leaves no process behind."""

    def __init__(self, launch: Launch, interpreter: Path | str, module: str, log: Path,
                 variables: Mapping[str, str] | None = None, **options: Any):
        self.launch = launch
        # (rank, line)
        self.lines: queue.Queue[tuple[int, str | None]]  # type: ignore[assignment]
        self.lines = queue.Queue(WAITING_LINES * launch.ranks)
        self.links: dict[int, socket.socket] = {}
        self.pids: dict[int, int] = {}
        self.closed = False
        self.ending = threading.Lock()
        several = launch.nodes > 1
        self.listener = socket.socket(socket.AF_INET if several else socket.AF_UNIX)
        # A rank of another node must show this before anything it says is read.
        self.secret = secrets.token_hex(32) if several else ""
        super().__init__(interpreter, module, log, variables, **options)

    def ask(self, command: str, limit: float, **arguments: Any) -> dict[str, Any]:
        """Send one command to all ranks, wait at most `limit` seconds, and merge their answers."""
        self.number += 1
        deadline = self.clock() + limit
        self.memory = MemoryMessages(self.log, self.clock)
        self.signs = dict.fromkeys(range(self.launch.ranks), self.clock())
        self.used = {rank: cpu_seconds(pid) for rank, pid in list(self.pids.items())}
        while len(self.links) < self.launch.ranks:  # before the first command
            self._next(command, deadline, limit, set(self.links))
        line = json.dumps({"id": self.number, "command": command, **arguments}) + "\n"
        asked = Asked(command, arguments, time.monotonic())
        for link in self.links.values():
            with contextlib.suppress(OSError):  # the end of its lines shows that a rank is gone
                link.sendall(line.encode())
        answers: dict[int, dict[str, Any]] = {}
        refusal = None
        while len(answers) < self.launch.ranks:
            try:
                rank, message = self._next(command, deadline, limit, set(answers))
            except Failed:
                if refusal is None:
                    raise
                self.end()  # the others wait for the rank that refused
                raise Unsupported(refusal) from None
            if message.get("id") == self.number:
                try:
                    answers[rank] = self._checked(asked, rank, message)
                except Unsupported as why:
                    answers[rank], refusal = {}, refusal or str(why)
                    deadline = min(deadline, self.clock() + self.timeouts.shortage)
        if refusal is not None:
            raise Unsupported(refusal)
        self.closed = command == "close"
        in_order: list[Mapping[str, Any]] = [answers[rank] for rank in sorted(answers)]
        if self.secret:
            in_order = reading.as_long_as_the_longest(in_order)
        return reading.merged(command, in_order)

    def end(self) -> None:
        """Let the launcher end its ranks and remove Open MPI's shared memory, then end the rest.

        A launcher whose ranks closed ends by itself; terminated, torchrun would log a traceback.
        """
        with self.ending:  # two threads may end it: one waits for an answer, one stops the campaign
            if self.ended:
                return
            if self.closed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=LAST_WORDS_SECONDS)
            self.process.terminate()  # once: a second signal keeps mpiexec from cleaning up
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=CLEARING_SECONDS)
            super().end()

    def _said(self) -> list[str]:
        """Lines up to the start of the launcher's report, which would hide those of the ranks."""
        said, mark = super()._said(), self.launch.parallel.failure_report
        begins = [number for number, line in enumerate(said) if mark and mark in line]
        return said[:begins[0] + 1] if begins else said

    def _start(self, interpreter: str, module: str, environment: Mapping[str, str],
               log_file: IO[bytes]) -> "subprocess.Popen[str]":
        wire, further = str(Path(self.folder.name) / "wire"), {}
        if self.secret:
            names = allocation.nodes()[:self.launch.nodes]
            addresses = allocation.addresses(self.launch.nodes)
            meeting = Meeting(names, addresses, allocation.free_port(addresses[0]))
            # No other interface: what a stranger there sends never arrives.
            self.listener.bind((addresses[0], 0))
            wire = "tcp:{}:{}".format(*self.listener.getsockname())
            further = {**meeting.variables(), "DLBENCH_SECRET": self.secret}
            command = self.launch.command_on_nodes(interpreter, module, meeting)
        else:
            self.listener.bind(wire)
            command = self.launch.command(interpreter, module, self.folder.name)
        self.listener.listen(self.launch.ranks)
        variables = {**environment, "DLBENCH_WIRE": wire, **further,
                     "DLBENCH_RANK_IN": self.launch.rank}
        try:
            process = subprocess.Popen(command, cwd=self.log.parent, start_new_session=True,
                                       stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file,
                                       text=True, env=variables)
        except FileNotFoundError:
            self._close_wire()
            self.folder.cleanup()
            raise Failed("crashed", f"{command[0]}, which starts the ranks, is not on this machine"
                                    ": install the packages that `system` of its file in "
                                    "configs/frameworks names") from None
        threading.Thread(target=self._accept, daemon=True).start()
        return process

    def _close_wire(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.listener.close()
        for link in self.links.values():
            link.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: socket.socket) -> None:
        """Pass on the lines of a rank; the first one says which rank it is."""
        if self.secret and not _shows(link, self.secret):
            link.close()
            return
        with link.makefile("r", encoding="utf-8", errors="replace") as file:
            lines = iter(partial(file.readline, reading.LONGEST_LINE + 1), "")
            first = next(lines, "")
            try:
                said = reading.greeting(first)
            except Failed:
                self.lines.put((-1, first))
                return
            rank = said.rank
            if rank >= self.launch.ranks or rank in self.links:
                return
            self.links[rank] = link
            if not self.secret:  # else it is a number of another machine
                self.pids[rank] = said.pid
            self.lines.put((rank, first))
            with contextlib.suppress(ValueError, OSError):
                put_all(lines, lambda line: self.lines.put((rank, line)))
            self.lines.put((rank, None))

    def _next(self, command: str, deadline: float, limit: float,
              done: set[int]) -> tuple[int, dict[str, Any]]:
        """Return the next message that is no heartbeat. Raises Failed if a rank died or hangs."""
        while True:
            try:
                rank, line = self.lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if self.process.poll() is not None and self.lines.empty():
                    reason = (f"the launcher ended during '{command}' with exit code "
                              f"{self.process.returncode}; {self.log_note()}")
                    raise self._failed("crashed", reason) from None
            else:
                if line is None:
                    raise self._death_of(rank, command)
                if rank < 0:  # nobody knows who says it
                    reading.greeting(line)
                self.signs[rank] = self.clock()
                message = reading.parse(line)
                if "beat" not in message:
                    return rank, message
            self._notice_shortage(command)
            self._notice_silence(command, done)  # also between heartbeats of the others
            if self.clock() > deadline:
                raise self._late(command, limit, f"{self._missing(done)}: ") from None

    def _notice_silence(self, command: str, done: set[int]) -> None:
        """Raise Failed if a rank neither sends a heartbeat nor computes.

        A rank in a long call that holds Python's lock computes.
        """
        for rank in list(self.links):
            if rank not in done and self.clock() - self.signs[rank] > self.timeouts.silence:
                now = cpu_seconds(self.pids[rank]) if rank in self.pids else None
                if now == self.used.get(rank):
                    raise self._silent(f"rank {rank}: '{command}'")
                self.signs[rank], self.used[rank] = self.clock(), now or 0.0

    def _checked(self, asked: Asked, rank: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """Check an answer. If a rank failed because another died, that death is the failure."""
        try:
            here = reading.in_our_clock(message) if self.secret else message
            return reading.check(here, asked, f"rank {rank}: ")
        except Failed:
            with contextlib.suppress(queue.Empty):
                until = self.clock() + GRACE_SECONDS
                while (left := until - self.clock()) > 0:
                    other, line = self.lines.get(timeout=left)
                    if line is None:
                        raise self._death_of(other, asked.command) from None
            raise

    def _death_of(self, rank: int, command: str) -> Failed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LAST_WORDS_SECONDS)
        if oom_kills() > self.oom_kills:
            return Failed("out_of_memory", f"rank {rank}: '{command}': {KILLED}")
        reason = f"rank {rank} ended during '{command}'; {self.log_note()}"
        return self._failed("crashed", reason)

    def _missing(self, done: set[int]) -> str:
        ranks = sorted(set(range(self.launch.ranks)) - done)
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _shows(link: socket.socket, secret: str) -> bool:
    """Return whether the other end sends the secret in time; a stranger is not waited for."""
    shown, until = b"", time.monotonic() + SECRET_SECONDS
    with contextlib.suppress(OSError):
        while len(shown) < len(secret) and (left := until - time.monotonic()) > 0:
            link.settimeout(left)
            if not (more := link.recv(len(secret) - len(shown))):
                break
            shown += more
        link.settimeout(None)
    return hmac.compare_digest(shown, secret.encode())
