"""How a worker fails to give what was asked: it refuses, or it fails.

Reasons may hold what a framework says, so they are made one printable line here.
"""

from analysis.records.text import one_line


class Unsupported(Exception):
    """The worker's framework cannot do what was asked; the message is its reason."""

    def __init__(self, reason: str):
        super().__init__(one_line(reason))


class Failed(Exception):
    """A failure; `kind` is different, out_of_memory, crashed, timed_out, diverged, target or
    protocol.

    A worker that `answered` with its failure is still alive.
    """

    def __init__(self, kind: str, reason: str, answered: bool = False):
        self.kind = kind
        self.reason = one_line(reason)
        self.answered = answered
        super().__init__(f"{kind}: {self.reason}")
