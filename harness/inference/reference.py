"""Asks the float64 reference about inference: statistics, outputs, and the spread of rounding.

All engines get one file of weights and running statistics. Files are written once a campaign.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import networks
import runners.arrays
from harness.data import arrays
from harness.proof.questions import KEEP_MEMORY, OF_REFERENCE, REFERENCE_THREADS
from harness.workers.alive import LiveWorkers
from harness.workers.cores import THREAD_VARIABLES, cores
from harness.workers.worker import Failed, Worker

REFERENCE = "runners.reference.inference"
# The running statistics are drawn around the moments of so many samples.
CALIBRATION = 8
# They lie so far from those of any batch that an engine which takes the batch's own is far off: in
# standard deviations, and as the logarithm of a factor of the variance.
MEAN_SHIFT, VARIANCE_SPREAD = 0.25, 0.25
PROOF_BATCHES = 2
SEED = 1000  # added to the suite's, so that the inputs of the proof are not the timed ones
RUNS = 3  # with random rounding


@dataclass(frozen=True)
class Asked:
    """What one proof compares: a network and how an engine was told to compute it."""

    network: networks.Network
    batch: int
    precision: str


@dataclass
class Reference:
    """Asks the float64 reference, each question once. Keeps files in `folder`."""

    folder: Path
    seed: int
    samples: int  # rows of each batch that are compared
    limit: float  # seconds for an answer
    live: LiveWorkers
    known: dict[Any, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def trained(self, network: networks.Network) -> Path:
        """Return the file of weights and running statistics that every engine is given."""
        file = self.folder / f"trained-{network.name}.npz"
        with self.lock:
            if not file.exists():
                weights = arrays.draw_weights(network, self.seed)
                runners.arrays.save(file, weights)
                if network.has_batch_norm:
                    statistics = self._statistics(network, file)
                    runners.arrays.save(file, {**weights, **statistics})
        return file

    def proof_inputs(self, asked: Asked) -> Path:
        """Return the file of batches on which an engine is proven before it is timed."""
        file = self.folder / f"proof-inputs-{asked.network.name}-{asked.batch}.npz"
        with self.lock:
            if not file.exists():
                drawn = arrays.synthetic_batches(asked.network, asked.batch, PROOF_BATCHES,
                                                 self.seed + SEED)
                arrays.save_batches(file, *drawn)
        return file

    def rows(self, file: Path) -> list[list[int]]:
        """Choose the rows of each batch of a file that are compared: always the same ones."""
        with self.lock:
            key = "rows", file.name
            if key not in self.known:
                batches, count = arrays.mapped(file)["inputs"].shape[:2]
                generators = [np.random.default_rng([self.seed, batch, *file.name.encode()])
                              for batch in range(batches)]
                self.known[key] = [sorted(each.permutation(count)[:self.samples].tolist())
                                   for each in generators]
            return list(self.known[key])

    def outputs(self, network: networks.Network, file: Path) -> list[np.ndarray]:
        """Return the exact outputs of the chosen rows of each batch of a file. Raises Failed.

        Once they are known, the file may go.
        """
        with self.lock:
            key = "outputs", file.name
            if key not in self.known:
                inputs, chosen = arrays.mapped(file)["inputs"], self.rows(file)
                found = self._outputs(network, np.concatenate(
                    [batch[rows] for batch, rows in zip(inputs, chosen, strict=True)]), file.stem)
                ends = np.cumsum([len(rows) for rows in chosen])[:-1]
                self.known[key] = np.split(found, ends)
            return list(self.known[key])

    def rounding(self, network: networks.Network, precision: str) -> float:
        """Return the largest error of correct arithmetic of a precision. Raises Failed."""
        # Rounding spreads among a few tokens as among 1024, whose answers would take hours.
        network = networks.short_of(network)
        with self.lock:
            key = "rounding", network.name, precision
            if key not in self.known:
                file = self.folder / f"rounded-inputs-{network.name}.npz"
                drawn, _ = arrays.synthetic_batches(
                    network, max(2, self.samples), PROOF_BATCHES, self.seed + SEED)
                runners.arrays.save(file, {"inputs": drawn.reshape(-1, *drawn.shape[2:])})
                with self._worker(network) as worker:
                    found = worker.ask("rounding", self.limit, weights=str(self.trained(network)),
                                       inputs=str(file), precision=precision, runs=RUNS,
                                       seed=self.seed)
                self.known[key] = max(found["errors"])
            return float(self.known[key])

    def _statistics(self, network: networks.Network, weights: Path) -> dict[str, np.ndarray]:
        """Draw running statistics around the moments of a few samples."""
        inputs = self.folder / f"calibration-{network.name}.npz"
        drawn, _ = arrays.synthetic_batches(network, CALIBRATION, 1, self.seed)
        runners.arrays.save(inputs, {"inputs": drawn[0]})
        out = self.folder / f"moments-{network.name}.npz"
        with self._worker(network) as worker:
            worker.ask("moments", self.limit, weights=str(weights), inputs=str(inputs),
                       out=str(out))
        generator = np.random.default_rng(self.seed)
        found = arrays.mapped(out)
        statistics = {}
        for name in (name for name in found if name.endswith(".mean")):
            mean, variance = found[name], found[name.replace(".mean", ".variance")]
            apart, factor = generator.standard_normal((2, *mean.shape))
            moved = {name: mean + MEAN_SHIFT * np.sqrt(variance) * apart,
                     name.replace(".mean", ".variance"):
                         variance * np.exp(VARIANCE_SPREAD * factor)}
            statistics.update({each: array.astype(np.float32) for each, array in moved.items()})
        return statistics

    def _outputs(self, network: networks.Network, inputs: np.ndarray, name: str) -> np.ndarray:
        file = self.folder / f"rows-{name}.npz"
        out = self.folder / f"outputs-{name}.npz"
        runners.arrays.save(file, {"inputs": inputs})
        with self._worker(network) as worker:
            worker.ask("outputs", self.limit, weights=str(self.trained(network)),
                       inputs=str(file), out=str(out))
        return arrays.mapped(out)["outputs"]

    @contextmanager
    def _worker(self, network: networks.Network) -> Iterator[Worker]:
        threads = str(len(cores(REFERENCE_THREADS)))
        variables = {**KEEP_MEMORY, **dict.fromkeys(THREAD_VARIABLES, threads)}
        log = self.folder / f"reference-{network.name}.log"
        try:
            with Worker(sys.executable, REFERENCE, log, variables) as worker, \
                    self.live.holding(worker):
                worker.ask("build", self.limit, network=network.to_json(), batch=1, device="cpu",
                           threads=1, precision="fp32", tuning="stock", dropout=False)
                yield worker
        except Failed as failure:
            raise Failed(failure.kind, f"{OF_REFERENCE}{failure.reason}") from None
