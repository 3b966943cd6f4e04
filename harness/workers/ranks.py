"""The workers of a trial with a process a device, seen from the driver as one worker.

The framework's own launcher starts them and stands between, so ranks speak on a Unix socket. Each command goes to all; their
answers become one: a window lasts from the first start to the last stop, a loss is the mean. A rank that dies, hangs or disagrees
is one `Failed` that names it, and what one refuses is refused by all. Everything else of a worker is `harness.workers.worker`.
"""

import contextlib
import json
import queue
import socket
import statistics
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.environments.recipes import Parallel
from harness.workers.out_of_memory import MemoryMessages
from harness.workers.worker import (
    POLL_SECONDS,
    Failed,
    Unsupported,
    Worker,
    cpu_seconds,
    oom_kills,
    parse,
)

GRACE_SECONDS = 1.0  # in which the death that made another rank fail shows itself
LAST_WORDS_SECONDS = 3.0  # in which a launcher writes why a rank has ended, or ends by itself behind ranks that closed
CLEARING_SECONDS = 10.0  # in which one that is told to end clears away: 1 to 2.3 s, and more than 3 on a busy machine

MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {  # of what ranks may answer differently; everything else must be equal
    "start": min, "stop": max, "loss": statistics.fmean, "peak_memory_bytes": max, "idle_seconds": max,
    "pid": lambda values: values[0],
    "losses": lambda values: [statistics.fmean(of_step) for of_step in zip(*values, strict=True)],
    "hashes": lambda values: [value for hashes in values for value in hashes],
}


@dataclass(frozen=True)
class Launch:
    """How many ranks are started, and by what."""

    parallel: Parallel
    ranks: int

    def command(self, interpreter: str, module: str, scratch: str) -> list[str]:
        """The launcher's command line, whose own files may lie in `scratch`; {folder} in `program` is the environment's folder."""
        words = [self.parallel.program.replace("{folder}", str(Path(interpreter).parent.parent)) or interpreter,
                 *self.parallel.launch, "runners", module]
        for name, meant in (("{devices}", str(self.ranks)), ("{interpreter}", interpreter), ("{scratch}", scratch)):
            words = [word.replace(name, meant) for word in words]
        return words


class Ranks(Worker):
    """The ranks of `module`; a context manager that leaves no process behind, neither of the launcher's nor of theirs."""

    def __init__(self, launch: Launch, interpreter: Path | str, module: str, log: Path,
                 variables: Mapping[str, str] | None = None, **options: Any):
        self.launch = launch
        self.lines: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()  # type: ignore[assignment]  # rank, line
        self.links: dict[int, socket.socket] = {}
        self.pids: dict[int, int] = {}
        self.closed = False
        self.ending = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        super().__init__(interpreter, module, log, variables, **options)

    def ask(self, command: str, limit: float, **arguments: Any) -> dict[str, Any]:
        """Send one command to all ranks, wait at most `limit` seconds for all their answers, and merge them."""
        self.number += 1
        deadline = self.clock() + limit
        self.memory = MemoryMessages(self.log, self.clock)
        self.signs = dict.fromkeys(range(self.launch.ranks), self.clock())
        self.used = {rank: cpu_seconds(pid) for rank, pid in list(self.pids.items())}
        while len(self.links) < self.launch.ranks:  # before the first command
            self._next(command, deadline, limit, set(self.links))
        line = json.dumps({"id": self.number, "command": command, **arguments}) + "\n"
        for link in self.links.values():
            with contextlib.suppress(OSError):  # of a rank that is gone the end of its lines tells
                link.sendall(line.encode())
        answers: dict[int, dict[str, Any]] = {}
        refusal = None
        while len(answers) < self.launch.ranks:
            try:
                rank, message = self._next(command, deadline, limit, set(answers))
            except Failed:
                if refusal is None:
                    raise
                self.end()  # the others wait for the one that refused: nothing more is to be had of them
                raise Unsupported(refusal) from None
            if message.get("id") == self.number:
                answers[rank] = self._checked(command, rank, message)
                if refusal is None and answers[rank]["status"] == "unsupported":
                    refusal = answers[rank]["reason"]
                    deadline = min(deadline, self.clock() + self.timeouts.shortage)
        self.closed = command == "close"
        return merged(command, [answers[rank] for rank in sorted(answers)])

    def end(self) -> None:
        """Let the launcher end its ranks and clear away what it made (Open MPI's shared memory), then end what is left.

        One whose ranks have closed ends by itself; torchrun, told to, would leave a traceback in the log.
        """
        with self.ending:  # whoever waits for an answer and whoever stops the campaign may both end it
            if self.ended:
                return
            if self.closed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=LAST_WORDS_SECONDS)
            self.process.terminate()  # once: a second signal keeps mpiexec from clearing away
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=CLEARING_SECONDS)
            super().end()

    def _said(self) -> list[str]:
        """As of any worker, up to the first line of the launcher's report, which would hide what the ranks themselves said."""
        said, mark = super()._said(), self.launch.parallel.failure_report
        begins = next((number for number, line in enumerate(said) if mark and mark in line), len(said))
        return said[:begins + 1]

    def _start(self, interpreter: str, module: str, environment: Mapping[str, str], log_file: IO[bytes]) -> "subprocess.Popen[str]":
        wire = str(Path(self.folder.name) / "wire")
        self.listener.bind(wire)
        self.listener.listen(self.launch.ranks)
        command = self.launch.command(interpreter, module, self.folder.name)
        told = {**environment, "DLBENCH_WIRE": wire, "DLBENCH_RANK_IN": self.launch.parallel.rank}
        try:
            process = subprocess.Popen(command, cwd=self.log.parent, start_new_session=True, stdin=subprocess.DEVNULL,
                                       stdout=log_file, stderr=log_file, text=True, env=told)
        except FileNotFoundError:
            self._close_wire()
            self.folder.cleanup()
            raise Failed("crashed", f"{command[0]}, which starts the ranks, is not on this machine: install the packages that "
                                    "`system` of its file in configs/frameworks names") from None
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
        """Pass on the lines of a rank, the first of which says which one it is."""
        with contextlib.suppress(ValueError, OSError), link.makefile("r") as lines:
            first = next(lines, "{}")
            said = json.loads(first)
            rank = said.get("rank")
            if rank not in range(self.launch.ranks) or rank in self.links:
                return
            self.pids[rank], self.links[rank] = said["pid"], link
            self.lines.put((rank, first))
            with contextlib.suppress(ValueError, OSError):
                for line in lines:
                    self.lines.put((rank, line))
            self.lines.put((rank, None))

    def _next(self, command: str, deadline: float, limit: float, done: set[int]) -> tuple[int, dict[str, Any]]:
        """The next message that is not a sign of life; raises Failed where no more is to be expected of a rank."""
        while True:
            try:
                rank, line = self.lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if self.process.poll() is not None and self.lines.empty():
                    raise self._failed("crashed", f"the launcher ended during '{command}' with exit code "
                                                  f"{self.process.returncode}; log: {self.log_tail()}") from None
            else:
                if line is None:
                    raise self._death_of(rank, command)
                self.signs[rank] = self.clock()
                message = parse(line)
                if "beat" not in message:
                    return rank, message
            self._notice_shortage(command)
            self._notice_silence(command, done)  # also between the beats of the others
            if self.clock() > deadline:
                raise self._failed("timed_out", f"{self._missing(done)}: no answer to '{command}' within {limit:.0f} s; "
                                                f"log: {self.log_tail()}") from None

    def _notice_silence(self, command: str, done: set[int]) -> None:
        """A rank that neither beats nor computes is hung; one long call that holds Python's lock is not."""
        for rank, pid in list(self.pids.items()):
            if rank not in done and self.clock() - self.signs[rank] > self.timeouts.silence:
                now = cpu_seconds(pid)
                if now == self.used.get(rank):
                    raise self._failed("timed_out", f"rank {rank}: '{command}': no heartbeat and no processor time "
                                                    f"for {self.timeouts.silence:.0f} s")
                self.signs[rank], self.used[rank] = self.clock(), now

    def _checked(self, command: str, rank: int, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer that is no failure; where a rank fails because another one died, the death is the reason."""
        if answer["status"] not in ("ok", "unsupported"):
            with contextlib.suppress(queue.Empty):
                until = self.clock() + GRACE_SECONDS
                while (left := until - self.clock()) > 0:
                    other, line = self.lines.get(timeout=left)
                    if line is None:
                        raise self._death_of(other, command)
            raise Failed(answer["kind"], f"rank {rank}: {answer['reason']}", answered=True)
        return {key: value for key, value in answer.items() if key != "id"}

    def _death_of(self, rank: int, command: str) -> Failed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LAST_WORDS_SECONDS)
        if oom_kills() > self.oom_kills:
            return Failed("out_of_memory", f"rank {rank}: '{command}': the kernel's out-of-memory killer ended the worker")
        return self._failed("crashed", f"rank {rank} ended during '{command}'; log: {self.log_tail()}")

    def _missing(self, done: set[int]) -> str:
        ranks = sorted(set(range(self.launch.ranks)) - done)
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def merged(command: str, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make one answer of those of all ranks, in their order. Raises Unsupported where one refuses, Failed where they disagree."""
    for answer in answers:
        if answer["status"] == "unsupported":
            raise Unsupported(answer["reason"])
    one = {}
    for key, value in answers[0].items():
        values = [answer.get(key) for answer in answers]
        if key in MERGED:
            value = MERGED[key](values)
        elif values != [value] * len(values):
            rank = next(rank for rank, other in enumerate(values) if other != value)
            raise Failed("different", f"rank {rank} answers '{command}' with {key} {values[rank]}, rank 0 with {value}")
        one[key] = value
    del one["status"]
    return one
