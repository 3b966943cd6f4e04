"""Runs a campaign's processes; several of them get ready at a time.

Timing stays one at a time: while a process is timed, the others of its group wait and compute
nothing, and no process gets ready or ends. The waiting ones hold memory, so a suite has to ask for
them (`prepare_jobs`). Traces and profiles are made in the same way after the group.

A process, trace or profile that runs out of memory beside others runs once more, alone; this
includes a part of its step. After that no worker is kept, and groups are smaller: on GPUs they are
expected to hold less than the group that ran short, elsewhere as many processes get ready as had
room before, or half as many if all had.

No further process of a trial starts where it would end alike: the trial was refused, its loss
diverged, or its first process timed out or gave no answer to its check.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from harness.campaign.events import Outcome, ran_short
from harness.campaign.kinds.accuracy import AccuracyProcess
from harness.campaign.kinds.files import FilesProcess
from harness.campaign.kinds.inference import InferenceProcess
from harness.campaign.process import Process, now
from harness.campaign.session import Session
from harness.campaign.tracing import Recording
from harness.plan import memory
from harness.plan.planner import Trial
from harness.workers.pool import leaves_traces
from harness.workers.worker import Failed, Unsupported, Worker

REST_SECONDS = 60.0  # for a worker to free its network; a slower one is not worth keeping

Item = TypeVar("Item")
Result = TypeVar("Result")


class Pipeline:
    """The processes of a campaign in groups of `jobs` at most, in the order of `waiting`.

    A group is smaller where a GPU would not hold it. An item of `waiting` is a trial, its process
    and the place in the order. `note` hears of memory that ran short.
    """

    def __init__(self, session: Session, waiting: Sequence[tuple[Trial, int, int]],
                 note: Callable[[str], None]):
        self.session = session
        self.waiting = list(waiting)
        self.note = note
        self.jobs = session.suite.prepare_jobs
        self.keep = session.suite.keep_workers
        self.device_bytes = session.device_bytes  # what a group may hold; less after a shortage
        self.group: list[Trial] = []  # that got ready together last
        self.beside_others = False  # whether other workers lived when this group got ready
        self.room = 0  # how many of this group did not run out of memory while they got ready
        self.ready: list[Process] = []
        self.timed: list[tuple[Worker, Trial]] = []
        self.recordings: list[Recording] = []  # traces and profiles, for the end of the group
        self.hopeless: dict[str, Outcome] = {}  # by trial: after this outcome no process is started

    def run(self, trial: Trial, process: int, order: int) -> Outcome:
        """Run the next process. One that is not in `waiting` gets ready now."""
        is_ready = [(each.trial, each.number) for each in self.ready[:1]] == [(trial, process)]
        if trial.trial in self.hopeless and not is_ready:
            return _not_started(self.hopeless[trial.trial], process, order)
        outcome = self._measure(self._take(trial, process, order))
        short = outcome.shortage
        if short and self.beside_others:
            part = f", part {short['variant']}," if "variant" in short else ""
            self._make_room(f"{trial.trial} process {process}{part}", short["reason"])
            outcome = self._measure(process_of(self.session, trial, process, order).get_ready())
        if _is_hopeless(outcome):
            self.hopeless[trial.trial] = outcome
            self.waiting = [each for each in self.waiting if each[0].trial != trial.trial]
        if not self.ready:
            self._end_group()
        return outcome

    def recorded(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the tables and rows of `recordings`, once no process waits to be timed.

        Recordings get ready side by side, and record one at a time.
        """
        if self.ready:
            return
        group, self.recordings = self.recordings, []
        short: list[Recording] = []
        with contextlib.ExitStack() as held:
            for each in group:
                held.enter_context(each.held)
            for first in range(0, len(group), self.jobs):
                beside = group[first:first + self.jobs]
                for each in self._in_parallel(lambda one: one.get_ready(), beside):
                    rows = each.rows()
                    others = [one for one in self.session.live.workers if not one.ended]
                    if ran_short(rows[0]) and (len(group) > 1 or others):
                        short.append(each)
                    else:
                        yield each.table, rows
        if short:
            earliest = short[0]
            self._make_room(f"{earliest.trial.trial} {earliest.asked.command}", earliest.reason)
        for each in short:
            yield each.table, each.again()

    def _take(self, trial: Trial, process: int, order: int) -> Process:
        if not self.ready:
            group = [(trial, process, order)]
            if self.waiting and self.waiting[0][:2] == (trial, process):
                most = memory.fitting([trial for trial, _, _ in self.waiting[:self.jobs]],
                                      self.device_bytes)
                group, self.waiting = self.waiting[:most], self.waiting[most:]
            self.group = [trial for trial, _, _ in group]
            self.beside_others = len(group) > 1 or bool(self.session.pool.idle)
            self.ready = self._in_parallel(Process.get_ready,
                                           [process_of(self.session, *each) for each in group])
            self.room = sum(not each.outcome.shortage for each in self.ready)
            if self.room == len(group):
                # One that runs out of memory later shows that there is less room.
                self.room = len(group) // 2
        return self.ready.pop(0)

    def _measure(self, process: Process) -> Outcome:
        outcome = process.measure()
        if process.worker:
            self.timed.append((process.worker, process.trial))
            if self.ready or (self.keep and self.waiting):
                # At once, so that only the process being timed holds the memory of training.
                _rest(process.worker)
        return outcome

    def _make_room(self, what: str, reason: str) -> None:
        """End all workers, because `what` ran out of memory; those that were ready start again.

        No worker is kept from now on: those of some frameworks never give memory back.
        """
        smaller = memory.smaller(self.group)
        if self.device_bytes and smaller:
            self.device_bytes = smaller
            fewer = "fewer processes get ready at a time"
        else:
            self.jobs = max(1, min(self.jobs - 1, self.room))
            fewer = f"processes get ready {self.jobs} at a time"
        self.keep = False
        self.note(f"{what} failed beside other workers ({reason}): it runs again alone; from now "
                  f"on {fewer} and no worker is kept")
        self.waiting = [(each.trial, each.number, each.order) for each in self.ready] + self.waiting
        self.timed += [(each.worker, each.trial) for each in self.ready if each.worker]
        self.ready = []
        self._end_group()

    def _end_group(self) -> None:
        """Keep the workers that processes still to come can use, and end the others."""
        waiting = [trial for trial, _, _ in self.waiting] if self.keep else []
        ended = self.session.pool.clear(waiting)
        for worker, trial in self.timed:
            if self.keep and self.waiting and not worker.ended and not leaves_traces(trial):
                self.session.pool.put(worker, trial)
            else:
                ended.append(worker)
        self._in_parallel(Worker.finish, ended)
        self.session.live.discard(ended)
        self.timed = []

    def _in_parallel(self, job: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if len(items) < 2:
            return [job(item) for item in items]
        return list(self.session.live.each(job, items, len(items)))


def process_of(session: Session, trial: Trial, number: int, order: int) -> Process:
    """Return a process of the kind that the suite and the trial's mode ask for."""
    kind = AccuracyProcess if session.suite.until else Process
    if trial.mode == "inference":
        kind = InferenceProcess
    elif trial.data == "files":
        kind = FilesProcess
    return kind(session, trial, number, order)


def _is_hopeless(outcome: Outcome) -> bool:
    row = outcome.row
    if row["status"] != "failed":
        return bool(row["status"] == "unsupported")
    reason = str(row["reason"])
    no_answer = reason.startswith("timed_out") or "check" not in row
    return reason.startswith("diverged") or (row["process"] == 0 and no_answer)


def _not_started(earlier: Outcome, process: int, order: int) -> Outcome:
    """The outcome of a process that is not started because an earlier one was hopeless."""
    row = earlier.row
    reason = row["reason"]
    if row["status"] != "unsupported":
        kind, _, why = reason.partition(": ")
        reason = f"{kind}: not started, because process {row['process']} failed: {why}"
    return Outcome({"trial": row["trial"], "process": process, "order": order, "reason": reason,
                    "status": row["status"], "started": now(), "log": row.get("log", "")})


def _rest(worker: Worker) -> None:
    """Let a worker free its network; end one that fails at it."""
    if not worker.ended:
        try:
            worker.ask("rest", REST_SECONDS)
        except (Failed, Unsupported):
            worker.end()
