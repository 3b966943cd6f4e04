"""Tests weights that a framework has trained, and looks at its steps.

Where float32 trains without batch norm, the float64 reference computes all outputs from a snapshot.
Else the framework answers the test part in inference mode, and the reference computes a few of its
outputs from the snapshot's weights and running statistics. A reference process waits while a window
is timed.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import networks
import runners.arrays
from harness.accuracy import witness
from harness.accuracy.witness import Recipe
from harness.data import arrays
from harness.data.divided import Divided
from harness.inference.calls import read_answer
from harness.inference.judge import BLIND, FACTOR, FLOOR, distances, unit_of
from harness.proof import questions
from harness.workers.alive import LiveWorkers
from harness.workers.files import AnswerFolder, arrays_in
from harness.workers.worker import Failed, Worker

# The reference's modules: if the framework evaluates by itself, and if it does not.
CHECKING, TESTING = "runners.reference.inference", "runners.reference.training"
ROWS = 8  # test outputs that the reference computes too
RUNS = 3  # of those, with random rounding

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reached:
    """What weights reach on the test part; `error` is that of the outputs where compared."""

    accuracy: float
    loss: float
    error: float = math.nan


@dataclass
class Examiner:
    """Reads snapshots of a worker and lets the reference compute with them."""

    network: networks.Network
    divided: Divided
    precision: str
    tests: Path  # the file of the test part
    limit: float  # seconds for an answer
    reference: Worker
    folder: AnswerFolder
    snapshots: int = 0

    @property
    def running(self) -> dict[str, float]:
        """The share of each running statistic that a step keeps."""
        return {f"{layer.name}.{kind}": layer.attributes["running"] for layer in self.network.layers
                if layer.op == "batch_norm" for kind in ("mean", "variance")}

    def snapshot(self, worker: Worker) -> Path:
        """Let a worker save its weights; return a copy that it cannot change. Raises Failed."""
        self.snapshots += 1
        name = f"weights-{self.snapshots}.npz"
        worker.ask("snapshot", self.limit, out=str(self.folder.path(name)))
        most = 8 * self.network.parameter_count + 4096 * (1 + len(self.network.parameter_shapes))
        copy = self.folder.path(f"own-{name}")
        with self.folder.open(name, most) as file:
            runners.arrays.save(copy, self._checked(arrays_in(file)))
        self.folder.path(name).unlink(missing_ok=True)
        return copy

    def test(self, worker: Worker, weights: Path) -> tuple[Reached, np.ndarray]:
        """Return accuracy and mean cross-entropy of these weights, and the outputs [n, K]."""
        labels = self.divided.test_part[1]
        out = self.folder.path("outputs.npz")
        if tests_itself(self.network, self.precision):
            worker.ask("evaluate", self.limit, inputs=str(self.tests), out=str(out))
            found = read_answer(self.folder, out.name, "outputs",
                                (len(labels), self.network.classes))
        else:
            self.reference.ask("outputs", self.limit, weights=str(weights), inputs=str(self.tests),
                               out=str(out))
            found = np.array(arrays.mapped(out)["outputs"])
        return score(found.astype(np.float64), labels), found

    def confirm(self, outputs: np.ndarray, weights: Path, draw: list[int],
                decides: bool) -> float:
        """Compare a few test outputs of a framework with the reference's; return the error.

        Raises Failed if the error is larger than rounding to the trial's precision explains. Where
        the accuracy `decides`, raises Failed too if rounding explains so much that the comparison
        proves nothing. `draw` seeds the choice of outputs, which the framework does not learn.
        """
        rows = np.sort(np.random.default_rng(draw).permutation(len(outputs))[:ROWS])
        file, out = self.folder.path("rows.npz"), self.folder.path("rows-outputs.npz")
        runners.arrays.save(file, {"inputs": self.divided.test_part[0][rows]})
        self.reference.ask("outputs", self.limit, weights=str(weights), inputs=str(file),
                           out=str(out))
        exact = np.array(arrays.mapped(out)["outputs"])
        spread = self.reference.ask("rounding", self.limit, weights=str(weights), inputs=str(file),
                                    precision=self.precision, runs=RUNS, seed=draw[-1])["errors"]
        limit = FACTOR * max(spread) + FLOOR
        error = float(np.max(distances(outputs[rows], exact)) / unit_of(exact))
        if not error <= limit:
            raise Failed("different", "the test is not that of the network in inference mode: "
                                      f"outputs are off by {error:.2g} of how they differ between "
                                      f"inputs, {limit:.2g} allowed")
        if decides and limit >= BLIND:
            raise Failed("different", "the test is unproven: its outputs may be off by "
                                      f"{limit:.2g} of how they differ between inputs")
        return error

    def look(self, weights: tuple[Path, Path, Path], batches: Path, recipe: Recipe) -> witness.Seen:
        """Compare the step from the second of three weights with the reference's gradient."""
        out = self.folder.path("gradients.npz")
        self.reference.ask("gradients", self.limit, weights=str(weights[1]),
                           batches=str(batches), number=0, out=str(out))
        before, between, after = map(arrays.mapped, weights)
        return witness.look(before, between, after, arrays.mapped(out), recipe)

    def parameters_of(self, weights: Path) -> Path:
        """Return a file of a snapshot's parameters, without the running statistics."""
        file = self.folder.path("parameters.npz")
        found = arrays.mapped(weights)
        runners.arrays.save(file, {name: found[name] for name in self.network.parameter_shapes})
        return file

    def _checked(self, found: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        shapes = {name: value.shape for name, value in found.items()}
        floats = all(value.dtype.kind == "f" for value in found.values())
        if shapes != self.network.state_shapes or not floats:
            raise Failed("protocol", "the snapshot's weights are not those of the network")
        return found


def tests_itself(network: networks.Network, precision: str) -> bool:
    """Return whether the framework answers the test part; else the reference does."""
    return network.has_batch_norm or precision != "fp32"


def score(outputs: np.ndarray, labels: np.ndarray) -> Reached:
    """Return the share of right answers and the mean cross-entropy of outputs [N, K]."""
    top = outputs.max(axis=1, keepdims=True)
    logarithm = top[:, 0] + np.log(np.exp(outputs - top).sum(axis=1))
    losses = logarithm - outputs[np.arange(len(labels)), labels]
    return Reached(float(np.mean(outputs.argmax(axis=1) == labels)), float(losses.mean()))


@contextmanager
def examiner(divided: Divided, precision: str, tests: Path, limit: float,
             live: LiveWorkers) -> Iterator[Examiner]:
    """Lend an examiner with a reference process of its own. Raises Failed."""
    network = divided.network
    module = CHECKING if tests_itself(network, precision) else TESTING
    with (AnswerFolder(tests.parent) as folder,
          questions.reference(module, folder.path("reference.log"), live) as worker):
        with questions.blaming_reference():
            worker.ask("build", limit, network=network.to_json(), batch=1, threads=1,
                       **questions.REFERENCE_TASK)
        yield Examiner(network, divided, precision, tests, limit, worker, folder)
