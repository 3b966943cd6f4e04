"""Workers that have timed a trial and may time others like it, where a suite says `keep_workers`.

A process of a trial needs a worker that has not served this trial before: that is what makes a trial's processes independent of
each other. It may have served another one, for a worker builds every network anew. Alike are trials whose workers are started
alike: of one framework, kind and number of devices, threads, precision and tuning. Here they rest: they hold no network.
"""

from threading import Lock

from harness.plan import Trial
from harness.worker import Worker


class Shelf:
    """The workers that wait for a trial."""

    def __init__(self) -> None:
        self.lock = Lock()  # processes may get ready several at a time
        self.waiting: list[Worker] = []
        self.served: dict[Worker, list[Trial]] = {}

    def put(self, worker: Worker, trial: Trial) -> None:
        """Keep a worker that has served `trial` for another one."""
        with self.lock:
            self.served.setdefault(worker, []).append(trial)
            self.waiting.append(worker)

    def take(self, trial: Trial) -> Worker | None:
        """Take a worker that served trials like this one, but not this one; None where there is none."""
        with self.lock:
            for worker in self.waiting:
                earlier = self.served[worker]
                if _alike(earlier[0]) == _alike(trial) and trial.trial not in [each.trial for each in earlier]:
                    self.waiting.remove(worker)
                    return worker
        return None

    def clear(self) -> list[Worker]:
        """Take all workers that wait."""
        with self.lock:
            left, self.waiting = self.waiting, []
        return left


def _alike(trial: Trial) -> tuple[object, ...]:
    return (trial.framework, trial.release, trial.device_kind, trial.devices, trial.threads, trial.precision, trial.tuning)
