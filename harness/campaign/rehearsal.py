"""Runs one process of each side of a comparison before anything is timed.

A side that cannot be built or run is then found before the other one takes its time.
"""

from collections.abc import Mapping

from harness.campaign.pipeline import process_of
from harness.campaign.session import Plan, Session
from harness.environments.store import BuildFailed
from harness.plan.planner import Trial
from harness.workers.launch import first_line


class SideFailed(Exception):
    """A side of a comparison cannot be built or run; nothing was timed."""

    def __init__(self, names: Mapping[str, str], side: str, reason: str):
        super().__init__(f"{side} ({names[side.lower()]}) could not be built or run: {reason}. "
                         "Nothing was timed.")
        self.a, self.b, self.side, self.reason = names["a"], names["b"], side, reason


def rehearse(plan: Plan, session: Session) -> None:
    """Run the smallest trial of each side for a few steps. Raises SideFailed.

    A side whose every trial is refused fails. One that trains another network does not: it is timed
    and its rows are not compared.
    """
    names = plan.comparison or {}
    # A release against itself runs once.
    for side in "A" if names["a"] == names["b"] else "AB":
        trials = [trial for trial in plan.trials if trial.side == side]
        if reason := _fault(session, trials):
            raise SideFailed(names, side, reason)


def _fault(session: Session, trials: list[Trial]) -> str:
    """Return why no trial of a side can run, or ""."""
    reasons = [trial.reason for trial in trials if trial.status != "planned"]
    planned = [trial for trial in trials if trial.status == "planned"]
    for trial in sorted(planned, key=lambda trial: trial.flops_per_step):
        environment = session.environment(trial)
        if isinstance(environment, BuildFailed):
            return first_line(environment)
        outcome = process_of(session, trial, 0, 0).rehearse()
        if outcome.row["status"] == "ok":
            return ""
        reasons.append(str(outcome.row["reason"]))
        if outcome.row["status"] == "failed":
            return f"{reasons[-1]} (log: {session.logs.parent / outcome.row['log']})"
    return reasons[-1] if reasons else "the suite has no trial of it"
