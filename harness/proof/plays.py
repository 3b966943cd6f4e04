"""What the proof asks of a worker: to train a few steps, by the step that is timed.

Each play loads weights, trains on batches that repeat a few samples, and saves the parameters and
running statistics after each step. `docs/method/sameness.md` says what each play shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np

import networks
from harness.data import arrays
from harness.proof.questions import (
    BATCHES,
    CALIBRATED,
    FIRST_BATCH,
    PLAIN,
    SMOOTH,
    Question,
)
from harness.workers.worker import Worker


class Misfit(Exception):
    """A parameter is missing or has another shape, which NumPy might broadcast."""


@dataclass(frozen=True)
class Play:
    """What a worker answered: its losses, and what each step left behind, by step and name."""

    losses: list[float]
    parameters: list[dict[str, np.ndarray]]
    statistics: list[dict[str, np.ndarray]]


@dataclass
class Plays:
    """The plays of one proof. Files of answers are removed at its end."""

    plain: Play
    calibrated: Play
    smooth: Play | None = None
    # Without dropout after `plain`, else after `calibrated`: its steps from the second on, each by
    # a runner that has just loaded what the step before left.
    own: list[Play] = field(default_factory=list)
    again: Play | None = None  # the first step of `plain` once more, with other dropout masks


@contextmanager
def played(worker: Worker, question: Question, residence: str, steps: int,
           limit: float) -> Iterator[Plays]:
    """Let a worker that has built its network make all plays of a proof.

    Raises Misfit, and Failed and Unsupported as the worker does.
    """
    files: list[Path] = []

    def train(weights: Path, start: int, steps: int, prefix: str = "") -> Play:
        files.append(question.folder / f"proof-{uuid4().hex}.npz")
        answer = worker.ask("train", limit, weights=str(weights), start=start, steps=steps,
                            samples=str(question.file("samples")), out=str(files[-1]),
                            residence=residence, prefix=prefix)
        found = arrays.mapped(files[-1])
        return Play(answer["losses"], *(
            [_named(found, f"{step}/{kind}/") for step in range(1, steps + 1)]
            for kind in ("parameters", "statistics")))

    def of(kind: str, steps: int) -> Play:
        return train(question.file(kind), FIRST_BATCH[kind], steps)

    def own_steps_of(answer: Path, first: int) -> list[Play]:
        return [train(answer, (first + step) % BATCHES, 1, f"{step}/parameters/")
                for step in range(1, steps)]

    dropout = question.network.has_dropout
    try:
        plain = of(PLAIN, 1 if dropout else steps)
        answer = files[-1]
        _refuse_misfits(question.network, plain.parameters[0])
        smooth = of(SMOOTH, 1) if SMOOTH in question.kinds else None
        calibrated = of(CALIBRATED, steps if dropout else 1)
        if dropout:
            own, again = own_steps_of(files[-1], FIRST_BATCH[CALIBRATED]), of(PLAIN, 1)
        else:
            own, again = own_steps_of(answer, FIRST_BATCH[PLAIN]), None
        yield Plays(plain, calibrated, smooth, own, again)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _refuse_misfits(network: networks.Network, found: dict[str, np.ndarray]) -> None:
    for name, shape in network.parameter_shapes.items():
        if name not in found:
            raise Misfit(f"no parameter of {name} was answered")
        if found[name].shape != shape:
            raise Misfit(f"the parameter of {name} has shape {found[name].shape}, not {shape}")


def _named(found: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in found.items()
            if name.startswith(prefix)}
