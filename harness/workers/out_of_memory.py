"""Finds a framework's message in a worker's log that an operation ran out of memory.

One replica that fails so leaves the others waiting in their collective: no answer comes, and the
worker's heartbeat goes on. Frameworks also log allocations that they retry, so the pattern is
narrow: TensorFlow's message about an operation. No other framework is known to hang this way.
Exceptions are answers; `OUT_OF_MEMORY` in runners/wire.py finds theirs.
"""

import re
from collections.abc import Callable
from pathlib import Path

from harness.workers.files import read_from

MOST_BYTES = 2**24  # that are searched at a time
# With and without the place in the source: both were seen on an H200.
MESSAGE = re.compile(r"(OP_REQUIRES failed at \S+ : |op_kernel\.cc:\d+\] )"
                     r"(RESOURCE_EXHAUSTED|Resource exhausted): "
                     r"(OOM|failed to allocate|Out of memory).*")


class MemoryMessages:
    """Searches what is written to a log from now on."""

    def __init__(self, log: Path, clock: Callable[[], float]):
        self.log = log
        self.clock = clock
        self.place = _size(log)
        self.line = ""
        self.seen = 0.0

    def first(self, age: float = 0.0) -> str:
        """Return the first message; empty if it was seen less than `age` seconds ago or never."""
        if not self.line:
            self._read()
        return self.line if self.clock() - self.seen >= age else ""

    def _read(self) -> None:
        # A framework that floods its log is not followed: its last words count.
        self.place = max(self.place, _size(self.log) - MOST_BYTES)
        # The rest of a line that is still being written comes later.
        whole, end, _ = read_from(self.log, self.place, MOST_BYTES).rpartition(b"\n")
        self.place += len(whole + end)
        if found := MESSAGE.search(whole.decode(errors="replace")):
            self.line, self.seen = found[0].strip(), self.clock()


def _size(log: Path) -> int:
    """Return the bytes of a log; 0 if it is gone, because a worker may have removed it."""
    try:
        return log.stat().st_size
    except OSError:
        return 0
