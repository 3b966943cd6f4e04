"""Asks the windows whether the clock waited for the device, without measuring anew: a missing synchronisation leaves traces.

A loop that does not wait stops the clock when the last step is queued. Then short windows, which fit into the queue, are faster a
step than long ones, and what still runs when the clock has stopped delays the loss that is read next. The windows of 2, 4, 8, ...
steps before the timed ones show the first, the time between windows the second. In that time the driver reads counters, which is
not the worker's; the rest is: until the answer comes, and until the ranks of the next window have met.
docs/method/limits.md says what neither can show.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.records.reader import EDGE

MINIMUM_PROCESSES = 3  # a fault of the loop shows in every process, a busy moment of the machine does not
FASTER = 1.6  # times as fast a step in a short window; clocks that fall when a device warms up explain 1.3
SLOWER = 1.4 / 2  # time of 2k steps by that of k steps, over 2: less, and time does not follow the number of steps
WAITING = 0.5  # of a window's time, between it and the next one; 0.10 in the best process of a trial at most (results/)
WAITING_SECONDS = 0.05  # the driver's own work between two windows, reading counters apart


def reasons(windows: pd.DataFrame, counters: pd.DataFrame | None = None) -> list[str]:
    """Say why the times of a trial cannot be believed; empty where they can, or where there are too few processes to tell.

    `windows` holds the windows of the trial's processes that ended well, `counters` what was read around them.
    """
    processes = [process.sort_values("window") for _, process in windows.groupby("process")]
    if len(processes) < MINIMUM_PROCESSES:
        return []
    pauses = [pause(process, _edges(counters, process["process"].iloc[0])) for process in processes]
    return [reason for reason in (_paces(processes), _pauses(pauses)) if reason]


def paces(process: pd.DataFrame) -> dict[int, float]:
    """Return how many times as fast a step is in the last warm-up window of each length as in the timed windows of a process."""
    steady = process.loc[process["window"] >= 0, "step_seconds"].median()
    warm_up = process[process["window"] < 0].drop_duplicates("steps", keep="last")
    return {int(steps): float(steady / seconds) for steps, seconds in zip(warm_up["steps"], warm_up["step_seconds"], strict=True)}


def pause(process: pd.DataFrame, edges: Sequence[float] = ()) -> tuple[float, float]:
    """Return the median time between a timed window and the next one in seconds, and as a share of a window's time.

    Left out is the time from the first to the last of `edges` in it, at which the driver read counters.
    """
    timed = process[process["window"] >= 0]
    pauses = []
    for stop, start in zip(timed["stop"].iloc[:-1], timed["start"].iloc[1:], strict=True):
        read = [edge for edge in edges if stop <= edge <= start]
        pauses.append(start - stop - (max(read) - min(read) if read else 0.0))
    seconds = float(np.median(pauses)) if pauses else 0.0
    return seconds, seconds / float(timed["seconds"].median())


def _edges(counters: pd.DataFrame | None, process: int) -> list[float]:
    if counters is None:
        return []
    read = counters[(counters["process"] == process) & (counters["kind"] == EDGE)]
    return sorted(read["seconds"])


def _paces(processes: Sequence[pd.DataFrame]) -> str:
    found = [paces(process) for process in processes]
    for steps in sorted(set.intersection(*(set(each) for each in found))):
        slowest = min(each[steps] for each in found)
        if slowest > FASTER:
            return (f"timer: windows of {steps} {'step' if steps == 1 else 'steps'} are {slowest:.3g} times as fast a step as "
                    "the timed ones, in every process: a synchronisation may be missing")
    halves = [each.get(_length(process) // 2, np.nan) for process, each in zip(processes, found, strict=True)]
    if min(map(_length, processes)) >= 4 and max(halves) < SLOWER:
        return (f"timer: twice the steps take only {2 * max(halves):.3g} times as long or less, in every process: "
                "time does not follow the steps")
    return ""


def _pauses(found: Sequence[tuple[float, float]]) -> str:
    if min(found) < (WAITING_SECONDS, 0.0) or min(share for _, share in found) < WAITING:
        return ""
    share = min(share for _, share in found)
    return (f"timer: after each window the worker is busy for {100 * share:.0f} % of the window's time and more, in every process: "
            "a synchronisation may be missing")


def _length(process: pd.DataFrame) -> int:
    return int(process.loc[process["window"] >= 0, "steps"].iloc[0])
