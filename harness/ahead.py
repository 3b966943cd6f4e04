"""Gets several processes ready at a time, so that a campaign does not wait for each one's imports, compilers and communicators.

Timing stays one at a time: while a process is timed those behind it wait for their turn and compute nothing, and none gets ready.
They hold memory of the device, though, and a little of the host's, so a suite asks for it (`prepare_jobs`).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from harness.plan import Trial
from harness.process import Bench, Ready, get_ready


class Ahead:
    """The processes of a campaign, got ready `jobs` at a time in the order of `waiting`: trial, process, place in the order."""

    def __init__(self, bench: Bench, waiting: Sequence[tuple[Trial, int, int]], jobs: int):
        self.bench = bench
        self.waiting = list(waiting)
        self.jobs = jobs
        self.ready: list[Ready] = []

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in list(self.bench.at_work):
            worker.end()

    def take(self, trial: Trial, process: int, order: int) -> Ready:
        """Return the process that is next; one that was not among those waiting gets ready now."""
        if not self.ready and self.waiting and self.waiting[0][:2] == (trial, process):
            group, self.waiting = self.waiting[:self.jobs], self.waiting[self.jobs:]
            self.ready = self._get_ready(group)
        return self.ready.pop(0) if self.ready else get_ready(self.bench, trial, process, order)

    def _get_ready(self, group: Sequence[tuple[Trial, int, int]]) -> list[Ready]:
        if len(group) == 1:
            return [get_ready(self.bench, *group[0])]
        pool = ThreadPoolExecutor(len(group))
        try:
            return list(pool.map(lambda each: get_ready(self.bench, *each), group))
        except BaseException:  # Ctrl-C: nobody waits for those that still get ready
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in list(self.bench.at_work):
                worker.end()
            raise
        finally:
            pool.shutdown()
