"""Runs a campaign's processes, several of which get ready at a time: it need not wait for each one's imports and compilers alone.

Timing stays one at a time: while a process is timed the others of its group wait and compute nothing, and none gets ready or ends.
They hold memory of the device, though, and a little of the host's, so a suite asks for it (`prepare_jobs`). A process, trace or
profile that runs out of memory beside others runs once more, alone, a process also for a part of its step; after that fewer get
ready at a time, and no worker is kept. Of a trial that was refused, whose first process hung until its limit or gave no answer to
its check, no further one is started: it would do so again, and nothing would prove its numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

from harness.campaign.process import Bench, Outcome, Ready, get_ready, time_process
from harness.plan.planner import Trial
from harness.workers.alive import results
from harness.workers.pool import leaves_traces
from harness.workers.worker import Failed, Unsupported, Worker

REST_SECONDS = 60.0  # for a worker to let go of its network; one that takes longer is not worth keeping

Item = TypeVar("Item")
Result = TypeVar("Result")


class Ahead:
    """The processes of a campaign, in groups of `jobs` in the order of `waiting`: trial, process, place in the order.

    `note` hears, in a line, of memory that ran short.
    """

    def __init__(self, bench: Bench, waiting: Sequence[tuple[Trial, int, int]], note: Callable[[str], None]):
        self.bench = bench
        self.waiting = list(waiting)
        self.note = note
        self.jobs = bench.suite.prepare_jobs
        self.keep = bench.suite.keep_workers
        self.company = False  # whether there were other workers when this group got ready
        self.ready: list[Ready] = []
        self.timed: list[tuple[Worker, Trial]] = []
        self.given_up: dict[str, Outcome] = {}  # by trial: how the process ended after which none is started

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bench.checks.at_work.stop()

    def run(self, trial: Trial, process: int, order: int) -> Outcome:
        """Run the process that is next; one that was not among those waiting gets ready now."""
        if trial.trial in self.given_up and not self._is_ready(trial, process):
            return _not_started(self.given_up[trial.trial], process, order)
        outcome = self._time(self._take(trial, process, order))
        short = outcome.shortage
        if short and self.company:
            self._make_room(f"process {process}" + (f", part {short['variant']}," if "variant" in short else ""), short)
            outcome = self._time(get_ready(self.bench, trial, process, order))
        if _is_hopeless(trial, outcome):
            self.given_up[trial.trial] = outcome
            self.waiting = [each for each in self.waiting if each[0].trial != trial.trial]
        if not self.ready:
            self._let_go()
        return outcome

    def beside(self, look: Callable[[Bench, Trial], list[dict[str, Any]]], trial: Trial) -> list[dict[str, Any]]:
        """Trace or profile a trial in one more worker beside those that wait, and alone where memory runs out; return its rows."""
        rows = look(self.bench, trial)
        others = [worker for worker in self.bench.checks.at_work.workers if not worker.ended]
        if others and str(rows[0].get("reason")).startswith("out_of_memory"):
            self._make_room(look.__name__, rows[0])
            rows = look(self.bench, trial)
        return rows

    def _is_ready(self, trial: Trial, process: int) -> bool:
        return bool(self.ready) and (self.ready[0].trial, self.ready[0].outcome.row["process"]) == (trial, process)

    def _take(self, trial: Trial, process: int, order: int) -> Ready:
        if not self.ready:
            group = [(trial, process, order)]
            if self.waiting and self.waiting[0][:2] == (trial, process):
                group, self.waiting = self.waiting[:self.jobs], self.waiting[self.jobs:]
            self.company = len(group) > 1 or bool(self.bench.shelf.waiting)
            self.ready = self._side_by_side(lambda each: get_ready(self.bench, *each), group)
        return self.ready.pop(0)

    def _time(self, ready: Ready) -> Outcome:
        outcome = time_process(self.bench, ready)
        if ready.worker:
            self.timed.append((ready.worker, ready.trial))
            if self.ready or (self.keep and self.waiting):
                _rest(ready.worker)  # at once, so that of a group only the one being timed holds what training takes
        return outcome

    def _make_room(self, what: str, row: Mapping[str, Any]) -> None:
        """End all workers, for what has run out of memory, as its row says. Those that were ready get ready again later.

        Workers are not kept any more because those of some frameworks never give memory back while they live.
        """
        self.jobs = max(1, self.jobs // 2)
        self.keep = False
        self.note(f"{row['trial']} {what} failed beside other workers ({row['reason']}): it runs again alone; "
                  f"from now on processes get ready {self.jobs} at a time and no worker is kept")
        self.waiting = [(each.trial, each.outcome.row["process"], each.outcome.row["order"]) for each in self.ready] + self.waiting
        self.timed += [(each.worker, each.trial) for each in self.ready if each.worker]
        self.ready = []
        self._let_go()

    def _let_go(self) -> None:
        """Keep the workers of the group for the next one, or let them end; those that nobody took from the shelf end too."""
        ended = self.bench.shelf.clear()
        for worker, trial in self.timed:
            if self.keep and self.waiting and not worker.ended and not leaves_traces(trial):
                self.bench.shelf.put(worker, trial)
            else:
                ended.append(worker)
        self._side_by_side(Worker.finish, ended)
        self.bench.checks.at_work.discard(ended)
        self.timed = []

    def _side_by_side(self, job: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Do a job for each of these; where that is stopped, nobody waits for the workers that are still at it."""
        if len(items) < 2:
            return [job(item) for item in items]
        pool = ThreadPoolExecutor(len(items))
        try:
            return list(results([pool.submit(job, item) for item in items]))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self.bench.checks.at_work.stop()
            raise
        finally:
            pool.shutdown()


def _is_hopeless(trial: Trial, outcome: Outcome) -> bool:
    row = outcome.row
    unproved = not trial.dropout and "check" not in row  # networks with dropout are checked in each process
    return row["status"] == "unsupported" or (row["status"] == "failed" and row["process"] == 0 and (outcome.timed_out or unproved))


def _not_started(earlier: Outcome, process: int, order: int) -> Outcome:
    """The outcome of a process that is not started, because an earlier one of its trial was refused or failed for all."""
    told = earlier.row
    kind, _, why = told["reason"].partition(": ")
    reason = told["reason"] if told["status"] == "unsupported" else f"{kind}: not started, as process 0 ended so: {why}"
    return Outcome({"trial": told["trial"], "process": process, "order": order, "status": told["status"], "reason": reason,
                    "started": datetime.now(UTC).isoformat(timespec="seconds"), "log": told.get("log", "")})


def _rest(worker: Worker) -> None:
    """Let a worker let go of its network; one that fails at it is ended."""
    if not worker.ended:
        try:
            worker.ask("rest", REST_SECONDS)
        except (Failed, Unsupported):
            worker.end()
