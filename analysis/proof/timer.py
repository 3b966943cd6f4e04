"""Checks from the windows whether the clock waited for the device.

A loop that does not wait stops the clock when the last step is queued. Then short windows, which
fit into the queue, are faster a step than long ones, and what still runs delays the next answer.
The warm-up windows of 2, 4, 8, ... steps show the first, the time between windows the second.
docs/method/limits.md says what neither can show.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.records.reader import EDGE

# A fault of the loop shows in every process, a busy moment of the machine does not.
MINIMUM_PROCESSES = 3
# Times as fast a step in a short window; clocks that fall as a device warms up explain 1.3.
FASTER = 1.6
# Time of 2k steps by that of k steps, over 2: below, time does not follow the number of steps.
SLOWER = 1.4 / 2
# Pause as a share of a window's time; results/ has at most 0.10 in a trial's best process.
WAITING = 0.5
# The driver's own work between two windows, without reading counters.
WAITING_SECONDS = 0.05


def reasons(windows: pd.DataFrame, counters: pd.DataFrame | None = None) -> list[str]:
    """Return why the times of a trial are not credible; nothing with too few processes to tell.

    `windows` are those of the trial's ok processes, `counters` the readings around them.
    """
    processes = [process.sort_values("window") for _, process in windows.groupby("process")]
    if len(processes) < MINIMUM_PROCESSES:
        return []
    pauses = [pause(process, _edges(counters, process["process"].iloc[0])) for process in processes]
    return [reason for reason in (_paces(processes), _pauses(pauses)) if reason]


def paces(process: pd.DataFrame) -> dict[int, float]:
    """Return the speedup a step of the last warm-up window of each length over the timed ones."""
    steady = process.loc[process["window"] >= 0, "step_seconds"].median()
    warm_up = process[process["window"] < 0].drop_duplicates("steps", keep="last")
    return {int(steps): float(steady / seconds)
            for steps, seconds in zip(warm_up["steps"], warm_up["step_seconds"], strict=True)}


def pause(process: pd.DataFrame, edges: Sequence[float] = ()) -> tuple[float, float]:
    """Return the median pause between timed windows, in seconds and as a share of a window.

    The time between the first and last of `edges` in a pause, when the driver read counters, is
    left out.
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
            return (f"timer: windows of {steps} {'step' if steps == 1 else 'steps'} are "
                    f"{slowest:.3g} times as fast a step as the timed ones, in every process: "
                    "a synchronisation may be missing")
    halves = [each.get(_length(process) // 2, np.nan)
              for process, each in zip(processes, found, strict=True)]
    if min(map(_length, processes)) >= 4 and max(halves) < SLOWER:
        return (f"timer: twice the steps take only {2 * max(halves):.3g} times as long or less, "
                "in every process: time does not follow the steps")
    return ""


def _pauses(found: Sequence[tuple[float, float]]) -> str:
    if min(found) < (WAITING_SECONDS, 0.0) or min(share for _, share in found) < WAITING:
        return ""
    share = min(share for _, share in found)
    return (f"timer: after each window the worker is busy for {100 * share:.0f} % of the window's "
            "time and more, in every process: a synchronisation may be missing")


def _length(process: pd.DataFrame) -> int:
    return int(process.loc[process["window"] >= 0, "steps"].iloc[0])
