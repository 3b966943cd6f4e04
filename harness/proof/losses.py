"""Finds losses that leave those of their peers: other frameworks on the same network and batches.

They begin with the same weights and see the same batches, so their losses stay close until rounding
has grown. A loss is judged by two peers or more, at the same step. It is away if its distance from
the nearest peer is more than half of its own first loss, and more than five times the spread of the
peers, in two windows in a row. Only processes whose proof said "same" are peers.
"""

from collections import defaultdict

import numpy as np

from harness.plan.planner import Trial

OF_FIRST, OF_SPREAD, IN_A_ROW, FEWEST = 0.5, 5.0, 2, 2

Curve = tuple[list[int], list[float]]  # steps and losses


class Peers:
    """The losses of a campaign's processes, step by step."""

    def __init__(self) -> None:
        # Of proven processes: group of comparable trials -> framework -> curves.
        self.curves: dict[tuple[object, ...], dict[str, list[Curve]]] = defaultdict(
            lambda: defaultdict(list))

    def add(self, trial: Trial, steps: list[int], losses: list[float]) -> None:
        """Keep the losses of a process that ended well and was proven."""
        if len(steps) > 1:
            self.curves[_group(trial)][trial.framework].append((steps, losses))

    def stray(self, trial: Trial, steps: list[int], losses: list[float]) -> str:
        """Say how the last losses of a process left its peers'; "" if they did not."""
        if len(steps) <= IN_A_ROW:
            return ""
        found = []
        for step, loss in zip(steps[-IN_A_ROW:], losses[-IN_A_ROW:], strict=True):
            others = self._at(trial, step)
            if len(others) < FEWEST:
                return ""
            apart = min(abs(loss - other) for other in others)
            spread = max(others) - min(others)
            if apart <= max(OF_FIRST * abs(losses[0]), OF_SPREAD * spread):
                return ""
            found.append(f"the loss is {loss:.4g} after step {step}, that of {len(others)} other "
                         f"frameworks {min(others):.4g} to {max(others):.4g}")
        return found[-1]

    def _at(self, trial: Trial, step: int) -> list[float]:
        """Return the loss of each other framework at a step that its curve reaches."""
        found = []
        for framework, curves in self.curves[_group(trial)].items():
            reached = [curve for curve in curves if curve[0][0] <= step <= curve[0][-1]]
            if framework != trial.framework and reached:
                found.append(float(np.median([np.interp(step, *curve) for curve in reached])))
        return found


def _group(trial: Trial) -> tuple[object, ...]:
    return trial.network, trial.global_batch, trial.data
