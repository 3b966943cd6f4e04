"""The driver's own test of weights that a framework has trained, in NumPy's float64.

One evaluation for all frameworks: they send weights and never see test inputs or labels. A
reference process computes outputs and gradients; it waits while a window is timed.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import networks
import runners.arrays
from harness.accuracy import witness
from harness.data import arrays
from harness.data.divided import Divided
from harness.proof.questions import KEEP_MEMORY, OF_REFERENCE, REFERENCE_THREADS
from harness.workers.alive import LiveWorkers
from harness.workers.cores import THREAD_VARIABLES, cores
from harness.workers.files import AnswerFolder
from harness.workers.worker import Failed, Worker

REFERENCE = "runners.reference.training"

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reached:
    """What weights reach on the test part."""

    accuracy: float
    loss: float


@dataclass
class Examiner:
    """Reads snapshots of a worker and lets the reference compute with them."""

    network: networks.Network
    divided: Divided
    limit: float  # seconds for an answer
    reference: Worker
    folder: AnswerFolder
    snapshots: int = 0

    def snapshot(self, worker: Worker) -> Path:
        """Let a worker save its weights; return a copy that it cannot change. Raises Failed."""
        self.snapshots += 1
        # Three are looked at together.
        name = f"weights-{self.snapshots % 3}.npz"
        worker.ask("snapshot", self.limit, out=str(self.folder.path(name)))
        most = 8 * self.network.parameter_count + 2048 * (1 + len(self.network.parameter_shapes))
        copy = self.folder.path(f"own-{name}")
        with self.folder.open(name, most) as file:
            runners.arrays.save(copy, self._checked(arrays.mapped_from(file)))
        return copy

    def test(self, weights: Path) -> Reached:
        """Return accuracy and mean cross-entropy of these weights on the test part."""
        inputs, out = self.folder.path("test.npz"), self.folder.path("outputs.npz")
        if not inputs.exists():
            runners.arrays.save(inputs, {"inputs": self.divided.test_inputs})
        self.reference.ask("outputs", self.limit, weights=str(weights), inputs=str(inputs),
                           out=str(out))
        return score(np.array(arrays.mapped(out)["outputs"]), self.divided.test_labels)

    def look(self, weights: tuple[Path, Path, Path], batches: Path, number: int) -> witness.Seen:
        """Compare the step on batch `number` from the second of three weights to the third."""
        out = self.folder.path("gradients.npz")
        before, between, after = map(arrays.mapped, weights)
        self.reference.ask("gradients", self.limit, weights=str(weights[1]),
                           batches=str(batches), number=number, out=str(out))
        recipe = witness.Recipe(self.network.learning_rate, self.network.momentum)
        return witness.look(before, between, after, arrays.mapped(out), recipe)

    def _checked(self, found: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        shapes = {name: value.shape for name, value in found.items()}
        if shapes != self.network.parameter_shapes:
            raise Failed("protocol", "the snapshot's weights are not those of the network")
        return found


def score(outputs: np.ndarray, labels: np.ndarray) -> Reached:
    """Return the share of right answers and the mean cross-entropy of outputs [N, K]."""
    top = outputs.max(axis=1, keepdims=True)
    logarithm = top[:, 0] + np.log(np.exp(outputs - top).sum(axis=1))
    losses = logarithm - outputs[np.arange(len(labels)), labels]
    return Reached(float(np.mean(outputs.argmax(axis=1) == labels)), float(losses.mean()))


@contextmanager
def examiner(network: networks.Network, divided: Divided, limit: float, scratch: Path,
             live: LiveWorkers) -> Iterator[Examiner]:
    """Lend an examiner with a reference process of its own. Raises Failed."""
    variables = {**KEEP_MEMORY,
                 **dict.fromkeys(THREAD_VARIABLES, str(len(cores(REFERENCE_THREADS))))}
    with AnswerFolder(scratch) as folder:
        log = folder.path("reference.log")
        with Worker(sys.executable, REFERENCE, log, variables) as worker, live.holding(worker):
            try:
                worker.ask("build", limit, network=network.to_json(), batch=1, device="cpu",
                           threads=1, precision="fp32", tuning="stock", dropout=False)
            except Failed as failure:
                raise Failed(failure.kind, f"{OF_REFERENCE}{failure.reason}") from None
            yield Examiner(network, divided, limit, worker, folder)
