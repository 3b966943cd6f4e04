"""Asks the float64 reference about inference: statistics, outputs, and the spread of rounding.

All engines get one file of weights and running statistics. Files are written once a campaign.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import networks
import runners.arrays
from harness.data import arrays, divided
from harness.environments import recipes
from harness.inference import answers
from harness.inference.answers import TestPart
from harness.plan.planner import Trial
from harness.proof import questions
from harness.workers.alive import LiveWorkers
from harness.workers.worker import Worker
from runners import int8

REFERENCE = "runners.reference.inference"
# The running statistics are drawn around the moments of so many samples.
CALIBRATION = 8
# How far the drawn statistics lie from those moments: in standard deviations for the mean, and as
# the logarithm of a factor for the variance. So an engine that takes the batch's own is far off.
MEAN_SHIFT, VARIANCE_SPREAD = 0.25, 0.25
PROOF_BATCHES = 2
SEED = 1000  # added to the suite's, so that the inputs of the proof are not the timed ones
RUNS = 3  # with random rounding
# Words whose outputs are compared at most: all of GPT-2's would be 206 MB a sample.
PLACES = 64
# Samples whose numbers give the ranges of INT8's tensors, and runs in which a number moves a level.
OF_RANGES, MOVES = 16, 5
# Samples of a real set whose outputs show how far rounding spreads in a trained network.
OF_ROUNDING = 16


@dataclass(frozen=True)
class Asked:
    """What one proof compares: a network and how an engine was told to compute it.

    In INT8 `summands` is how the engine stores those of additions. `data` is a real set's name.
    """

    network: networks.Network
    batch: int
    precision: str
    summands: str = ""
    data: str = ""

    @classmethod
    def of(cls, trial: Trial) -> "Asked":
        data = "" if trial.data in ("device", "host") else trial.data
        asked = cls(networks.get(trial.network), trial.batch, trial.precision, data=data)
        if trial.precision != "int8":
            return asked
        return replace(asked, summands=recipes.load(trial.framework).int8_summands)

    @property
    def quantised(self) -> bool:
        """Whether the network is compared in its INT8 form."""
        return bool(self.summands)

    @property
    def form(self) -> tuple[str, str, str]:
        """What the exact outputs depend on beside the inputs: in INT8 on the ranges' data."""
        return self.network.name, self.summands, self.data if self.quantised else ""

    def unquantised(self) -> "Asked":
        """Return the network itself."""
        return replace(self, precision="fp32", summands="")


def chosen_places(network: networks.Network) -> list[int]:
    """Choose the words of a sequence whose outputs are compared; none where there are no words.

    The last one depends on all.
    """
    *length, _ = network.layers[-1].output_shape
    if not length:
        return []
    drawn = np.random.default_rng(length).permutation(length[0] - 1)[:PLACES - 1]
    return [*sorted(drawn.tolist()), length[0] - 1]


@dataclass
class Reference:
    """Asks the float64 reference, each question once. Keeps files in `folder`."""

    folder: Path
    seed: int
    samples: int  # rows of each batch that are compared
    limit: float  # seconds for an answer
    live: LiveWorkers
    # Draws a file of batches of a real set: of a network, a batch and the set's name.
    real: Callable[[networks.Network, int, str], Path] | None = None
    # Files of weights that were trained, by the network's name; other networks' are drawn.
    given: Mapping[str, Path] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def trained(self, network: networks.Network) -> Path:
        """Return the file of weights and running statistics that every engine is given."""
        if network.name in self.given:
            return self.given[network.name]
        file = self.folder / f"trained-{network.name}.npz"
        with self.lock:
            if not file.exists():
                # Far from kinks rounding to few bits stays small beside how outputs differ.
                weights = arrays.away_from_kinks(network, arrays.draw_weights(network, self.seed))
                runners.arrays.save(file, weights)
                if network.has_batch_norm:
                    statistics = self._statistics(network, file)
                    runners.arrays.save(file, {**weights, **statistics})
        return file

    def weights(self, asked: Asked) -> Path:
        """Return the file that an engine is given: in INT8 with the scales of tensors too."""
        trained = self.trained(asked.network)
        if not asked.quantised:
            return trained
        file = self.folder / f"{'-'.join(filter(None, ('int8', *asked.form)))}.npz"
        with self.lock:
            if not file.exists():
                added = int8.quantised_arrays(asked.network.to_json(), self._ranges(asked),
                                              asked.summands)
                runners.arrays.save(file, {**arrays.mapped(trained), **added})
        return file

    def proof_inputs(self, asked: Asked) -> Path:
        """Return the file of batches on which an engine is proven before it is timed."""
        source = self.source(asked)
        file = self.folder / f"proof-inputs{source}-{asked.network.name}-{asked.batch}.npz"
        with self.lock:
            if not file.exists():
                inputs, targets = arrays.synthetic_batches(asked.network, asked.batch,
                                                           PROOF_BATCHES, self.seed + SEED)
                if source:
                    inputs = self._training_samples(asked, PROOF_BATCHES * asked.batch,
                                                    SEED).reshape(inputs.shape)
                arrays.save_batches(file, inputs, targets)
        return file

    def source(self, asked: Asked) -> str:
        """Name the set that the proof's inputs are of, "" for synthetic ones.

        Synthetic inputs lie far from what weights were trained on: limits that rounding has there
        say nothing of the samples that are timed, and INT8's ranges cut most of such inputs off.
        """
        if asked.network.name in self.given and asked.data in divided.DIVISIBLE:
            return f"-{asked.data}"
        return ""

    def _training_samples(self, asked: Asked, count: int, added: int) -> np.ndarray:
        """Draw samples that are not of the part on which answers are counted."""
        return divided.divide(asked.data, asked.network).training_samples(count, self.seed + added)

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

    def outputs(self, asked: Asked, file: Path) -> list[np.ndarray]:
        """Return the exact outputs of the chosen rows of each batch of a file. Raises Failed.

        Once they are known, the file may go.
        """
        with self.lock:
            key = "outputs", asked.form, file.name
            if key not in self.known:
                inputs, chosen = arrays.mapped(file)["inputs"], self.rows(file)
                found = self._outputs(asked, np.concatenate(
                    [batch[rows] for batch, rows in zip(inputs, chosen, strict=True)]), file.stem)
                ends = np.cumsum([len(rows) for rows in chosen])[:-1]
                self.known[key] = np.split(found, ends)
            return list(self.known[key])

    def tests(self, asked: Asked) -> TestPart | None:
        """Return the labelled samples that trained weights answer, or None where there are none.
        """
        if not self.source(asked):
            return None
        with self.lock:
            key = "tests", asked.network.name, asked.data
            if key not in self.known:
                file = self.folder / f"tests-{asked.network.name}-{asked.data}.npz"
                self.known[key] = answers.draw(asked.network, asked.data, file)
            found: TestPart = self.known[key]
            return found

    def test_outputs(self, asked: Asked, tests: TestPart) -> np.ndarray:
        """Return the exact outputs of all test samples [n, K]. Raises Failed."""
        with self.lock:
            key = "test outputs", asked.form, asked.data
            if key not in self.known:
                inputs = arrays.mapped(tests.file)["inputs"]
                self.known[key] = self._outputs(asked, inputs, tests.file.stem)
            found: np.ndarray = self.known[key]
            return found

    def rounding(self, asked: Asked, moves: bool = False) -> float:
        """Return the largest error of correct arithmetic of a precision. Raises Failed.

        With `moves` it is that of INT8 in which a number near a tie goes to the other level.
        """
        return float(max(self._rounded(asked, moves)["errors"]))

    def rounding_along(self, asked: Asked) -> float:
        """Return how far correct arithmetic is off along the differences between outputs.

        It is the root mean square of `error_along` over runs and pairs of samples. Raises Failed.
        """
        return float(np.sqrt(np.mean(np.square(self._rounded(asked, False)["along"]))))

    def _rounded(self, asked: Asked, moves: bool) -> dict[str, list[float]]:
        # Rounding spreads among a few tokens as among 1024, whose answers would take hours.
        asked = replace(asked, network=networks.short_of(asked.network))
        network = asked.network
        with self.lock:
            source = self.source(asked)
            key = "rounding", asked.form, asked.precision, source, moves
            if key not in self.known:
                file = self.folder / f"rounded-inputs{source}-{network.name}.npz"
                if source:
                    drawn = self._training_samples(asked, OF_ROUNDING, SEED)
                else:
                    drawn, _ = arrays.synthetic_batches(
                        network, max(2, self.samples), PROOF_BATCHES, self.seed + SEED)
                    drawn = drawn.reshape(-1, *drawn.shape[2:])
                runners.arrays.save(file, {"inputs": drawn})
                with self._worker(network) as worker:
                    self.known[key] = worker.ask(
                        "rounding", self.limit, weights=str(self.weights(asked)),
                        inputs=str(file), precision=asked.precision,
                        runs=MOVES if moves else RUNS, seed=self.seed, moves=moves)
            return dict(self.known[key])

    def _ranges(self, asked: Asked) -> dict[str, np.ndarray]:
        """Return the ends of each tensor of a network over samples of the trial's data."""
        network, drawn = asked.network, asked.network.name
        if self.source(asked):
            inputs = self._training_samples(asked, OF_RANGES, 2 * SEED)
            drawn += "-" + asked.data
        elif asked.data and self.real:
            inputs = arrays.mapped(self.real(network, OF_RANGES, asked.data))["inputs"][-1]
            drawn += "-" + asked.data
        else:
            # Neither the proof's inputs nor those of timed calls.
            inputs = arrays.synthetic_batches(network, OF_RANGES, 1, self.seed + 2 * SEED)[0][0]
        file, out = (self.folder / f"{name}-{drawn}.npz" for name in ("range-inputs", "ranges"))
        if not out.exists():
            runners.arrays.save(file, {"inputs": inputs})
            with self._worker(network) as worker:
                worker.ask("ranges", self.limit, weights=str(self.trained(network)),
                           inputs=str(file), out=str(out))
        return arrays.mapped(out)

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

    def _outputs(self, asked: Asked, inputs: np.ndarray, name: str) -> np.ndarray:
        file = self.folder / f"rows-{name}.npz"
        out = self.folder / f"outputs-{name}.npz"
        runners.arrays.save(file, {"inputs": inputs})
        with self._worker(asked.network) as worker:
            worker.ask("outputs", self.limit, weights=str(self.weights(asked)),
                       inputs=str(file), places=chosen_places(asked.network), out=str(out))
        # A copy: the file is written again for another form of the network.
        return np.array(arrays.mapped(out)["outputs"])

    @contextmanager
    def _worker(self, network: networks.Network) -> Iterator[Worker]:
        log = self.folder / f"reference-{network.name}.log"
        with (questions.blaming_reference(),
              questions.reference(REFERENCE, log, self.live) as worker):
            worker.ask("build", self.limit, network=network.to_json(), batch=1, threads=1,
                       **questions.REFERENCE_TASK)
            yield worker
