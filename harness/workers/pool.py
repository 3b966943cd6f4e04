"""Workers that have timed a trial and may time others, where a suite says `keep_workers`.

Each process of a trial needs a worker that has not served this trial before: this keeps a trial's
processes independent. The worker may have served other trials with the same settings, because a
worker builds every network anew. Workers in the pool hold no network. A trial that `leaves_traces`
is the last one of its worker.
"""

from collections.abc import Iterable
from threading import Lock

from analysis.strategies import table as strategies
from harness.plan.planner import Trial
from harness.workers.worker import Worker


class WorkerPool:
    """The idle workers, each with the trials that it has served."""

    def __init__(self) -> None:
        self.lock = Lock()  # several processes may get ready at a time
        self.idle: list[Worker] = []
        self.served: dict[Worker, list[Trial]] = {}

    def put(self, worker: Worker, trial: Trial) -> None:
        """Keep a worker that has served `trial`."""
        with self.lock:
            self.served.setdefault(worker, []).append(trial)
            self.idle.append(worker)

    def take(self, trial: Trial) -> Worker | None:
        """Take a worker with this trial's settings that has not served it, or None."""
        with self.lock:
            for worker in self.idle:
                if self._serves(worker, trial):
                    self.idle.remove(worker)
                    return worker
        return None

    def clear(self, waiting: Iterable[Trial] = ()) -> list[Worker]:
        """Take the idle workers that none of the waiting trials can use."""
        with self.lock:
            useful = [worker for worker in self.idle
                      if any(self._serves(worker, trial) for trial in waiting)]
            left, self.idle = [each for each in self.idle if each not in useful], useful
        return left

    def _serves(self, worker: Worker, trial: Trial) -> bool:
        earlier = self.served[worker]
        new = trial.trial not in [each.trial for each in earlier]
        return new and _settings(earlier[0]) == _settings(trial)


def leaves_traces(trial: Trial) -> bool:
    """Return whether a trial changes how fast its worker trains another one.

    It does where GPUs aggregate during the backward pass. On two H200s (torch 2.11) four processes
    whose worker had run AlexNet with bf16_compress or power_sgd took 1 to 8 % longer for AlexNet
    with gather, tree, ring or one_bit. They received 2 to 7 GB/s by PCIe, other processes of these
    rows less than 0.1 GB/s. Two whose worker had run ResNet-50 with ddp received as much. The cause
    is unknown. Strategies that wait for the backward pass left no trace.
    """
    return (trial.device_kind == "cuda" and trial.devices > 1
            and not strategies.of(trial.strategy).after_backward)


def _settings(trial: Trial) -> tuple[object, ...]:
    """What a worker is started with."""
    return (trial.framework, trial.release, trial.side, trial.device_kind, trial.devices,
            trial.ranks, trial.threads, trial.precision, trial.tuning, trial.data == "files")
