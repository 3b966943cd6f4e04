"""The proof of sameness that a trial gives in a worker of its own before it is timed.

A worker of its own, because compilers and caches that a check fills must not affect a timed
process. Checks are not timed, so several may run at a time before the timing starts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Trial
from harness.plan.suite import Limits
from harness.proof.judge import Judge, Verdict
from harness.workers.alive import results
from harness.workers.launch import start, task_of
from harness.workers.worker import Failed, Unsupported, Worker


@dataclass(frozen=True)
class Checked:
    """A verdict, the worker's greeting and its log."""

    verdict: Verdict
    hello: Mapping[str, Any]
    log: Path


class Checks:
    """Makes each trial's check once and keeps the result."""

    def __init__(self, judge: Judge, environments: Mapping[str, Environment | BuildFailed],
                 limits: Limits, logs: Path):
        self.judge = judge
        self.environments = environments
        self.limits = limits
        self.logs = logs
        self.made: dict[str, Checked] = {}
        self.live = judge.live

    def make(self, trials: Sequence[Trial], jobs: int,
             made: Callable[[Trial, Checked], None]) -> None:
        """Make the checks of `trials`, `jobs` at a time; call `made` for each, in their order."""
        pool = ThreadPoolExecutor(jobs)
        try:
            checks = results([pool.submit(self.of, trial) for trial in trials])
            for trial, checked in zip(trials, checks, strict=True):
                made(trial, checked)
        except BaseException:  # Ctrl-C must not wait for running checks
            pool.shutdown(wait=False, cancel_futures=True)
            self.live.stop()
            raise
        finally:
            pool.shutdown()

    def of(self, trial: Trial) -> Checked:
        """Return the trial's check; make it now if there is none or if repeating it may help."""
        made = self.made.get(trial.trial)
        if made is None or made.verdict.may_pass:
            self.made[trial.trial] = made = self._make(trial)
        return made

    def _make(self, trial: Trial) -> Checked:
        log = self.logs / f"{trial.trial}-check.log"
        hello: dict[str, Any] = {}
        try:
            with self._worker(trial, log) as worker:
                hello = worker.ask("hello", self.limits.start)
                verdict = self.judge.judge(worker, networks.get(trial.network), task_of(trial))
        except Unsupported as refusal:
            verdict = Verdict("unsupported", str(refusal))
        except Failed as failure:
            verdict = Verdict("different", str(failure), failure=failure.kind)
        return Checked(verdict, hello, log)

    @contextmanager
    def _worker(self, trial: Trial, log: Path) -> Iterator[Worker]:
        log.unlink(missing_ok=True)
        environment = self.environments[f"{trial.framework}=={trial.release}"]
        with start(environment, trial, log) as worker, self.live.holding(worker):
            yield worker
