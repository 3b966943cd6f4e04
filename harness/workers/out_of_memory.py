"""A framework's own words in a worker's log that an operation failed because memory ran out.

One replica that fails so leaves the others waiting in their collective: no answer comes, and the worker beats on. Frameworks also
write of allocations that they try again or do without, so few words count: TensorFlow's of an operation. No other framework is
known to hang so: an exception is an answer, and the words of exceptions stand in runners/protocol.py (`OUT_OF_MEMORY`).
"""

import re
from collections.abc import Callable
from pathlib import Path

WORDS = re.compile(r"(OP_REQUIRES failed at \S+ : |op_kernel\.cc:\d+\] )"  # with and without the place, seen on an H200
                   r"(RESOURCE_EXHAUSTED|Resource exhausted): (OOM|failed to allocate|Out of memory).*")


class Shortage:
    """Looks for those words in what comes to a log from now on."""

    def __init__(self, log: Path, clock: Callable[[], float]):
        self.log = log
        self.clock = clock
        self.place = log.stat().st_size
        self.line = ""
        self.seen = 0.0

    def told(self, ago: float = 0.0) -> str:
        """The first line with them, from the words on; empty where there is none that was seen `ago` seconds ago or earlier."""
        if not self.line:
            self._read()
        return self.line if self.clock() - self.seen >= ago else ""

    def _read(self) -> None:
        with self.log.open("rb") as file:
            file.seek(self.place)
            whole, end, _ = file.read().rpartition(b"\n")  # of a line that is still being written the rest comes later
        self.place += len(whole + end)
        if found := WORDS.search(whole.decode(errors="replace")):
            self.line, self.seen = found[0].strip(), self.clock()
