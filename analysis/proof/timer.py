"""Checks from the windows whether the clock waited for the device.

A loop that does not wait stops the clock when the last step is queued. Then short windows, which
fit into the queue, are faster a step than long ones, and what still runs delays the next answer.
The warm-up windows of 2, 4, 8, ... steps show the first, the time between windows the second.
docs/method/limits.md says what neither can show.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.columns import EDGE

# A fault of the loop shows in every process, a busy moment of the machine does not.
MINIMUM_PROCESSES = 3
# Times as fast a step in a short window; clocks that fall as a device warms up explain 1.3.
FASTER = 1.6
# Time of 2k steps by that of k steps, over 2: below, time does not follow the number of steps.
SLOWER = 1.4 / 2
# Pause as a share of a window's time; results/ has at most 0.10 in a trial's best process. A runner
# that leaves a sixth of its steps to the pause has 0.2.
WAITING = 0.2
# The driver's own work between two windows, without reading counters.
WAITING_SECONDS = 0.05


def reasons(windows: pd.DataFrame, counters: pd.DataFrame | None = None, *,
            evaluates: bool = False) -> list[str]:
    """Return why the times of a trial are not credible; nothing with too few processes to tell.

    `windows` are those of the trial's ok processes, `counters` the readings around them. Where the
    driver `evaluates` the weights after each window, pauses say nothing of the clock.
    """
    processes = [process for _, process in windows.sort_values("window").groupby("process")]
    if len(processes) < MINIMUM_PROCESSES:
        return []
    found = [_paces(processes)]
    if not evaluates:
        edges = _edges(counters)
        found.append(_pauses([pause(process, edges.get(process["process"].iloc[0], ()))
                              for process in processes]))
    return list(filter(None, found))


def paces(process: pd.DataFrame) -> dict[int, float]:
    """Return the speedup a step of the last warm-up window of each length over the timed ones."""
    window, steps, seconds = (process[column].to_numpy()
                              for column in ("window", "steps", "step_seconds"))
    steady = _median(seconds[window >= 0])
    last = dict(zip(steps[window < 0], seconds[window < 0], strict=True))
    return {int(length): float(steady / taken) for length, taken in last.items()}


def pause(process: pd.DataFrame, edges: Sequence[float] = ()) -> tuple[float, float]:
    """Return the median pause between timed windows, in seconds and as a share of a window.

    The time between the first and last of `edges` in a pause, when the driver read counters, is
    left out.
    """
    timed = process["window"].to_numpy() >= 0
    starts, stops, seconds = (process[column].to_numpy()[timed]
                              for column in ("start", "stop", "seconds"))
    pauses = []
    for stop, start in zip(stops[:-1].tolist(), starts[1:].tolist(), strict=True):
        read = [edge for edge in edges if stop <= edge <= start]
        pauses.append(start - stop - (max(read) - min(read) if read else 0.0))
    median = float(np.median(pauses)) if pauses else 0.0
    return median, median / _median(seconds)


def _edges(counters: pd.DataFrame | None) -> dict[Any, list[float]]:
    """Return when the driver read the counters at the edges of windows, by process."""
    if counters is None:
        return {}
    read = counters[counters["kind"] == EDGE].groupby("process")["seconds"]
    return {process: sorted(seconds) for process, seconds in read}


def _median(values: np.ndarray) -> float:
    """Return the median of the known values; nan without any."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else np.nan


def _paces(processes: Sequence[pd.DataFrame]) -> str:
    found = [paces(process) for process in processes]
    for steps in sorted(set.intersection(*(set(each) for each in found))):
        slowest = min(each[steps] for each in found)
        if slowest > FASTER:
            return (f"timer: windows of {steps} {'step' if steps == 1 else 'steps'} are "
                    f"{slowest:.3g} times as fast a step as the timed ones, in every process: "
                    "a synchronisation may be missing")
    lengths = [int(each["steps"][each["window"] >= 0].iloc[0]) for each in processes]
    halves = [each.get(length // 2, np.nan) for length, each in zip(lengths, found, strict=True)]
    if min(lengths) >= 4 and max(halves) < SLOWER:
        return (f"timer: twice the steps take only {2 * max(halves):.3g} times as long or less, "
                "in every process: time does not follow the steps")
    return ""


def _pauses(found: Sequence[tuple[float, float]]) -> str:
    seconds, share = map(min, zip(*found, strict=True))
    if seconds < WAITING_SECONDS or share < WAITING:
        return ""
    return (f"timer: after each window the worker is busy for {100 * share:.0f} % of the window's "
            "time and more, in every process: a synchronisation may be missing")
