"""What the proof asks of a worker: to train a few steps, by the step that is timed.

Each play loads weights, trains on batches that repeat a few samples, and saves the parameters and
running statistics after each step. `docs/method/sameness.md` says what each play shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

import networks
from harness.data import arrays
from harness.proof.questions import (
    BATCHES,
    CALIBRATED,
    FIRST_BATCH,
    PLAIN,
    SMOOTH,
    ZERO,
    Question,
    trains_from_zero,
)
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder
from harness.workers.worker import Worker


class Misfit(Failed):
    """A parameter is missing or has another shape, which NumPy might broadcast."""

    def __init__(self, reason: str):
        super().__init__("protocol", reason, answered=True)


@dataclass(frozen=True)
class Play:
    """What a worker answered: its losses, and what each step left behind, by step and name.

    `hidden` says why the framework's running statistics cannot be read, if so.
    """

    losses: list[float]
    hidden: str
    parameters: list[dict[str, np.ndarray]]
    statistics: list[dict[str, np.ndarray]]


@dataclass
class Plays:
    """The plays of one proof. Files of answers are removed at its end."""

    plain: Play
    calibrated: Play
    smooth: Play | None = None
    zero: Play | None = None  # with dropout, from weights that are all zero
    # Without dropout after `plain`, else after `zero`: its steps from the second on, each by a
    # runner that has just loaded what the step before left.
    own: list[Play] = field(default_factory=list)
    again: Play | None = None  # the first step of `plain` once more, with other dropout masks
    first_seconds: float = 0.0  # of the network's first step, in which some frameworks compile


class Trainer:
    """Lets a worker that has built a network train, and reads what it saves in `folder`."""

    def __init__(self, worker: Worker, question: Question, residence: str, limit: float,
                 folder: AnswerFolder):
        self.worker = worker
        self.question = question
        self.residence = residence
        self.limit = limit
        self.folder = folder
        self.files = 0
        self.first_seconds = 0.0

    @property
    def last(self) -> Path:
        """Where the last answer lies."""
        return self.folder.path(f"{self.files}.npz")

    def train(self, weights: Path, start: int, steps: int, prefix: str = "") -> Play:
        """Train `steps` steps. Raises Misfit, and Failed and Unsupported as the worker does."""
        self.files += 1
        answer = self.worker.ask("train", self.limit, weights=str(weights), start=start,
                                 steps=steps, samples=str(self.question.file("samples")),
                                 out=str(self.last), residence=self.residence, prefix=prefix)
        self.first_seconds = answer.get("first_seconds", 0.0)
        with self.folder.open(self.last.name, _most_bytes(self.question.network, steps)) as file:
            found = _arrays(file)
        play = Play(answer["losses"], answer.get("hidden", ""), *(
            [_named(found, f"{step}/{kind}/") for step in range(1, steps + 1)]
            for kind in ("parameters", "statistics")))
        _refuse_misfits(self.question.network, play)
        return play


@contextmanager
def played(worker: Worker, question: Question, residence: str, steps: int,
           limit: float) -> Iterator[Plays]:
    """Let a worker that has built its network make all plays of a proof.

    Raises Misfit, and Failed and Unsupported as the worker does.
    """
    with AnswerFolder(question.folder) as folder:
        trainer = Trainer(worker, question, residence, limit, folder)

        def of(kind: str, steps: int) -> Play:
            return trainer.train(question.file(kind), FIRST_BATCH[kind], steps)

        def own_steps_of(answer: Path, first: int) -> list[Play]:
            return [trainer.train(answer, (first + step) % BATCHES, 1, f"{step}/parameters/")
                    for step in range(1, steps)]

        dropout = question.network.has_dropout
        plain = of(PLAIN, 1 if dropout else steps)
        answer = trainer.last
        smooth = of(SMOOTH, 1) if SMOOTH in question.kinds else None
        calibrated, again, zero = of(CALIBRATED, 1), of(PLAIN, 1) if dropout else None, None
        if trains_from_zero(question.network):
            zero = of(ZERO, steps)
            own = own_steps_of(trainer.last, FIRST_BATCH[ZERO])
        else:
            own = [] if dropout else own_steps_of(answer, FIRST_BATCH[PLAIN])
        yield Plays(plain, calibrated, smooth, zero, own, again, trainer.first_seconds)


def _most_bytes(network: networks.Network, steps: int) -> int:
    """Return more than `steps` steps can take: two float64 for each parameter, and names."""
    return steps * (16 * network.parameter_count + 2048 * len(network.parameter_shapes)) + 65536


def _arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Map the arrays that a worker saved. Raises Failed."""
    try:
        found = arrays.mapped_from(file)
    except Exception as error:  # whatever zipfile and NumPy make of a broken file
        raise Failed("protocol", "the file of answers cannot be read: "
                                 f"{type(error).__name__}: {error}") from None
    if not found:
        raise Failed("protocol", "the file of answers holds no array")
    for name, value in found.items():
        if value.dtype.kind != "f":
            raise Failed("protocol", f"the file of answers: {name}: came {value.dtype}, expected "
                                     "floating point")
    return found


def _refuse_misfits(network: networks.Network, play: Play) -> None:
    for found in play.parameters:
        for name, shape in network.parameter_shapes.items():
            if name not in found:
                raise Misfit(f"no parameter of {name} was answered")
            if found[name].shape != shape:
                raise Misfit(f"the parameter of {name} has shape {found[name].shape}, not {shape}")
    for found in play.statistics:
        for name, value in found.items():
            wanted = network.parameter_shapes.get(f"{name.partition('.')[0]}.scale")
            if value.shape != wanted:
                raise Misfit(f"the running statistic {name} has shape {value.shape}, not {wanted}")


def _named(found: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in found.items()
            if name.startswith(prefix)}
