"""Times nested parts of the training step, in a process whose timed windows are done.

F is forward and loss, FB adds the backward pass, FBA gradient aggregation, and FBAU is the whole
step; A is the aggregation alone. Windows of the parts take turns, so that slow drift affects all
alike. A part that a runner does not offer, or fails at, is a row of phases.csv with its reason. It
costs neither the process nor the other parts, as long as its worker can continue.
"""

import contextlib
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.workers.worker import Failed, Unsupported, Worker

PARTS = ("F", "FB", "FBA", "FBAU", "A")
# The parts of training from image files: the loader alone, the whole, the step alone on a ring.
OF_FILES = ("loader", "files", "step")
PILOT = 4  # a pilot has a quarter of a window's steps
SHORTEST_SECONDS = 1e-6  # of a pilot


def measure(worker: Worker, suite: Suite, trial: Trial, window_steps: int,
            parts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Time every part that the runner offers, as many windows as the suite has.

    A window of this process has `window_steps` whole steps. A worker that is lost with a part ends.
    `parts` are by default those of a step.
    """
    parts = parts or (PARTS[:-1] if trial.devices == 1 else PARTS)
    rows: list[dict[str, Any]] = []
    lengths: dict[str, int] = {}
    for window, part in product(range(-1, suite.windows), parts):
        try:
            if window < 0:
                lengths[part] = _length(worker, suite, part, window_steps)
            elif part in lengths:
                timed = _window(worker, suite, part, lengths[part])
                rows.append({"variant": part, "window": window, **timed})
        except (Unsupported, Failed) as why:
            lengths.pop(part, None)
            rows.append({"variant": part, "reason": str(why)})
            if not _goes_on(worker, why):
                known = {row["variant"] for row in rows}
                rows += [{"variant": other, "reason": f"the worker was lost with part {part}"}
                         for other in parts if other not in known]
                break
    return rows


def _length(worker: Worker, suite: Suite, part: str, window_steps: int) -> int:
    """Build a part, run it once, and find by a pilot how many steps a window has.

    No rank runs a part before all have built it, because one that cannot build it would keep the
    others waiting.
    """
    for steps in (0, 1):
        worker.ask("phase", suite.limits.build, variant=part, steps=steps)
    steps = max(1, window_steps // PILOT)
    pilot = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
    seconds: float = pilot["stop"] - pilot["start"]
    return math.ceil(steps * suite.window_seconds / max(seconds, SHORTEST_SECONDS))


def _window(worker: Worker, suite: Suite, part: str, steps: int) -> dict[str, Any]:
    answer = worker.ask("phase", suite.limits.window, variant=part, steps=steps)
    return {"steps": answer["steps"], "start": answer["start"], "stop": answer["stop"],
            "seconds": answer["stop"] - answer["start"]}


def _goes_on(worker: Worker, why: Unsupported | Failed) -> bool:
    """Return whether a worker can run other parts: it answered, and no rank waits for another.

    If not, end it, because its ranks would be out of step in the next part.
    """
    if isinstance(why, Unsupported):
        return not worker.ended
    if why.answered and not worker.ended:
        with contextlib.suppress(Failed, Unsupported):
            worker.ask("hello", worker.timeouts.shortage)
            return True
    worker.end()
    return False
