"""Times nested parts of the training step in a process whose timed windows are done: rows of phases.csv.

F is forward and loss, FB backward too, FBA gradient aggregation too, FBAU the whole step; A is the aggregation alone. Windows of
the parts take turns, so that slow drift hits all alike; their differences are for `analysis`. A part that a runner does not offer,
or fails at, is a row with its reason, and costs neither the process nor the other parts, as long as its worker can go on.
"""

import contextlib
import math
from typing import Any

from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.worker import Failed, Unsupported, Worker

PARTS = ("F", "FB", "FBA", "FBAU", "A")
PILOT = 4  # of a window of whole steps, whose parts take less time
SHORTEST_SECONDS = 1e-6  # of a pilot


def measure(worker: Worker, suite: Suite, trial: Trial, process: int, window_steps: int) -> list[dict[str, Any]]:
    """Time every part that the runner offers, as many windows as the suite has; one device has no aggregation alone.

    `window_steps` whole steps made a window of this process. A worker that is lost with a part is ended, and asked nothing more.
    """
    parts = PARTS[:-1] if trial.devices == 1 else PARTS
    rows: list[dict[str, Any]] = []
    lengths: dict[str, int] = {}
    turns = [*((part, -1) for part in parts), *((part, window) for window in range(suite.windows) for part in parts)]
    for part, window in turns:
        try:
            if window < 0:
                lengths[part] = _length(worker, suite, part, window_steps)
            elif part in lengths:
                rows.append({"variant": part, "window": window, **_window(worker, suite, part, lengths[part])})
        except (Unsupported, Failed) as why:
            lengths.pop(part, None)
            rows.append({"variant": part, "reason": str(why)})
            if not _goes_on(worker, why):
                told = {row["variant"] for row in rows}
                rows += [{"variant": other, "reason": f"the worker was lost with part {part}"}
                         for other in parts if other not in told]
                break
    return [{"trial": trial.trial, "process": process, **row} for row in rows]


def _length(worker: Worker, suite: Suite, part: str, window_steps: int) -> int:
    """Build a part, run it once, and find by a short window how many steps make a whole one.

    No rank runs it before all have built it: what one alone cannot build would keep the others waiting in its first run.
    """
    for steps in (0, 1):
        worker.ask("phase", suite.limits.build, variant=part, steps=steps)
    steps = max(1, window_steps // PILOT)
    pilot = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
    seconds: float = pilot["stop"] - pilot["start"]
    return math.ceil(steps * suite.window_seconds / max(seconds, SHORTEST_SECONDS))


def _window(worker: Worker, suite: Suite, part: str, steps: int) -> dict[str, Any]:
    answer = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
    return {"steps": answer["steps"], "start": answer["start"], "stop": answer["stop"], "seconds": answer["stop"] - answer["start"]}


def _goes_on(worker: Worker, why: Unsupported | Failed) -> bool:
    """Whether a worker can be asked for other parts: it has answered, and no rank still waits in the part for one that failed.

    Ends it where not, for the next part would meet its ranks out of step.
    """
    if isinstance(why, Unsupported):
        return not worker.ended
    if why.answered and not worker.ended:
        with contextlib.suppress(Failed, Unsupported):
            worker.ask("hello", worker.patience)
            return True
    worker.end()
    return False
