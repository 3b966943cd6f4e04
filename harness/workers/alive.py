"""The workers that are alive in any thread, so that whoever stops a campaign ends them all and waits for no thread in vain."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from harness.workers.worker import Failed, Worker

SIGNAL_SECONDS = 0.5  # at most, until a signal is heard

Result = TypeVar("Result")


class AtWork:
    """A set of workers that can be stopped for good: one that is added later is ended at once."""

    def __init__(self) -> None:
        self.workers: set[Worker] = set()
        self.stopped = False
        self.lock = threading.Lock()

    def add(self, worker: Worker) -> None:
        """Note a worker. Raises Failed, with the worker ended, where all have been stopped while it started."""
        with self.lock:
            self.workers.add(worker)
            stopped = self.stopped
        if stopped:
            worker.end()
            raise Failed("crashed", "stopped with its campaign")

    @contextmanager
    def of(self, worker: Worker) -> Iterator[None]:
        """Note a worker for as long as the block lasts."""
        self.add(worker)
        try:
            yield
        finally:
            self.discard([worker])

    def discard(self, workers: Sequence[Worker]) -> None:
        """Forget workers that somebody else ends."""
        with self.lock:
            self.workers.difference_update(workers)

    def stop(self) -> None:
        """End all workers, side by side, because a launcher takes seconds to clear away."""
        with self.lock:
            self.stopped = True
            workers = list(self.workers)
        with ThreadPoolExecutor(max(1, len(workers))) as pool:
            list(pool.map(lambda worker: worker.end(), workers))  # not Worker.end, for ranks end in their own way


def results(futures: Sequence[Future[Result]]) -> Iterator[Result]:
    """Yield the results in their order. Waits are short, for one without an end does not hear a signal that comes as it begins."""
    for future in futures:
        while not future.done():
            wait([future], SIGNAL_SECONDS)
        yield future.result()
