"""Times nested parts of the training step in a process whose timed windows are done: rows of phases.csv.

F is forward and loss, FB backward too, FBA gradient aggregation too, FBAU the whole step; A is the aggregation alone. Windows of
the parts take turns, so that slow drift hits all alike; their differences are for `analysis`. A part that a runner does not offer
is a row with its reason, and a failure here costs the process nothing.
"""

import math
from typing import Any

from harness.plan import Trial
from harness.suite import Suite
from harness.worker import Failed, Unsupported, Worker

PARTS = ("F", "FB", "FBA", "FBAU", "A")
PILOT = 4  # of a window of whole steps, whose parts take less time
SHORTEST_SECONDS = 1e-6  # of a pilot


def measure(worker: Worker, suite: Suite, trial: Trial, process: int, window_steps: int) -> list[dict[str, Any]]:
    """Time every part that the runner offers, as many windows as the suite has; one device has no aggregation alone.

    `window_steps` whole steps made a window of this process.
    """
    whose = {"trial": trial.trial, "process": process}
    rows, lengths = [], {}
    try:
        for part in PARTS[:-1] if trial.devices == 1 else PARTS:
            try:
                lengths[part] = _length(worker, suite, part, window_steps)
            except Unsupported as refusal:
                rows.append({**whose, "variant": part, "reason": str(refusal)})
        for window in range(suite.windows):
            for part, steps in lengths.items():
                answer = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
                seconds = answer["stop"] - answer["start"]
                rows.append({**whose, "variant": part, "window": window, "steps": answer["steps"], "start": answer["start"],
                             "stop": answer["stop"], "seconds": seconds})
    except Failed as failure:
        rows.append({**whose, "reason": str(failure)})
    return rows


def _length(worker: Worker, suite: Suite, part: str, window_steps: int) -> int:
    """Build a part, run it once, and find by a short window how many steps make a whole one."""
    worker.ask("phase", suite.limits.build, variant=part, steps=1)
    steps = max(1, window_steps // PILOT)
    pilot = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
    seconds: float = pilot["stop"] - pilot["start"]
    return math.ceil(steps * suite.window_seconds / max(seconds, SHORTEST_SECONDS))
