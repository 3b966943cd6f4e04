"""The live workers of all threads, so that all of them end when a campaign stops."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from harness.workers.worker import Failed, Worker

SIGNAL_SECONDS = 0.5  # until a signal is handled, at most

Item = TypeVar("Item")
Result = TypeVar("Result")


class LiveWorkers:
    """The workers that are alive. After `stop`, every worker that is added ends at once."""

    def __init__(self) -> None:
        self.workers: set[Worker] = set()
        self.stopped = False
        self.lock = threading.Lock()

    def add(self, worker: Worker) -> None:
        """Add a worker. If all were stopped while it started, end it and raise Failed."""
        with self.lock:
            self.workers.add(worker)
            stopped = self.stopped
        if stopped:
            worker.end()
            raise Failed("crashed", "stopped with its campaign")

    @contextmanager
    def holding(self, worker: Worker) -> Iterator[None]:
        """Add a worker for as long as the block lasts."""
        self.add(worker)
        try:
            yield
        finally:
            self.discard([worker])

    def discard(self, workers: Sequence[Worker]) -> None:
        """Remove workers that somebody else ends."""
        with self.lock:
            self.workers.difference_update(workers)

    def each(self, job: Callable[[Item], Result], items: Sequence[Item],
             jobs: int) -> Iterator[Result]:
        """Do a job for each item, `jobs` at a time; yield the results in the order of the items.

        If it is stopped, by Ctrl-C or an error, it ends all workers instead of waiting for them.
        """
        pool = ThreadPoolExecutor(jobs)
        try:
            yield from results([pool.submit(job, item) for item in items])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self.stop()
            raise
        finally:
            pool.shutdown()

    def stop(self) -> None:
        """End all workers in parallel, because a launcher takes seconds to clean up."""
        with self.lock:
            self.stopped = True
            workers = list(self.workers)
        with ThreadPoolExecutor(max(1, len(workers))) as pool:
            list(pool.map(lambda worker: worker.end(), workers))  # ranks override Worker.end


def results(futures: Sequence[Future[Result]]) -> Iterator[Result]:
    """Yield the results in order.

    It waits in short turns: a wait without a timeout misses a signal that comes as it begins.
    """
    for future in futures:
        while not future.done():
            wait([future], SIGNAL_SECONDS)
        yield future.result()
