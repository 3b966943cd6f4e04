"""Assigns each moment of a timeline once, so that overlapping activities add up to their time.

On a device a computing kernel hides a copy or a collective that runs beside it. On a processor an
operator hides its caller.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


def exposed(starts: Any, ends: Any, ranks: Any) -> Times:
    """Return each activity's own share, in the unit of its times; the sum is the union of all.

    A moment belongs in equal parts to the activities of the lowest rank that run in it.
    """
    starts, ends, ranks = np.asarray(starts, float), np.asarray(ends, float), np.asarray(ranks, int)
    edges = np.unique(np.concatenate([starts, ends]))
    opens, closes = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    # Segments between edges that no lower rank has taken.
    free = np.ones(max(len(edges) - 1, 0), bool)
    own = np.zeros(len(starts))
    for rank in np.unique(ranks):
        mine = ranks == rank
        begun, ended = (np.bincount(places[mine], minlength=len(edges))
                        for places in (opens, closes))
        running = np.cumsum(begun - ended)[:-1]
        taken = free & (running > 0)
        each = np.where(taken, np.diff(edges) / np.maximum(running, 1), 0.0)
        until = np.concatenate([[0.0], np.cumsum(each)])
        own[mine] = until[closes[mine]] - until[opens[mine]]
        free &= ~taken
    return own


def innermost(starts: Sequence[float],
              ends: Sequence[float]) -> tuple[NDArray[np.int64], Times, Times]:
    """Cut one thread's nested calls into pieces of the innermost call: (call, start, end) of each.

    A call that outlives its caller (clocks of microseconds allow it) is cut off with it.
    """
    order = sorted(range(len(starts)), key=lambda call: (starts[call], -ends[call]))
    pieces: list[tuple[int, float, float]] = []
    # Running calls, each with its end.
    stack: list[tuple[int, float]] = []
    clock = 0.0

    def advance(until: float) -> None:
        nonlocal clock
        while stack and stack[-1][1] <= until:
            call, end = stack.pop()
            pieces.append((call, clock, end))
            clock = max(clock, end)
        if stack:
            pieces.append((stack[-1][0], clock, until))
        clock = max(clock, until)

    for call in order:
        advance(starts[call])
        stack.append((call, min(ends[call], stack[-1][1]) if stack else ends[call]))
    advance(np.inf)
    kept = [piece for piece in pieces if piece[2] > piece[1]]
    calls, begins, finishes = zip(*kept, strict=True) if kept else ((), (), ())
    return np.array(calls, np.int64), np.array(begins, float), np.array(finishes, float)
