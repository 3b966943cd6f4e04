"""Workers that have timed a trial and may time others like it, where a suite says `keep_workers`.

A process of a trial needs a worker that has not served this trial before: that is what makes a trial's processes independent of
each other. It may have served another one, for a worker builds every network anew. Alike are trials whose workers are started
alike: of one framework, kind and number of devices, threads, precision and tuning, and of one side of a comparison. Here they rest:
they hold no network. A trial that leaves its traces in a worker is its last one (`leaves_traces`).
"""

from threading import Lock

from analysis.trials.phases import AFTER_BACKWARD
from harness.plan.planner import Trial
from harness.workers.worker import Worker


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


def leaves_traces(trial: Trial) -> bool:
    """Whether a trial changes how fast its worker trains another one: where GPUs aggregate while the backward pass runs.

    On two H200s (torch 2.11) four processes whose worker had run AlexNet with bf16_compress or power_sgd took 1 to 8 % longer for
    AlexNet with gather, tree, ring or one_bit, and received 2 to 7 GB/s by PCIe where others of their rows received less than 0.1;
    two whose worker had run ResNet-50 with ddp received as much. Why is not shown. Strategies that wait for the backward pass left
    nothing.
    """
    return trial.device_kind == "cuda" and trial.devices > 1 and trial.strategy not in AFTER_BACKWARD


def _alike(trial: Trial) -> tuple[object, ...]:
    return (trial.framework, trial.release, trial.side, trial.device_kind, trial.devices, trial.threads, trial.precision,
            trial.tuning)
