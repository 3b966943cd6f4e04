"""What the proof asks of a worker: to train a few steps, by the step that is timed.

Each play loads weights, and trains on batches that repeat a few samples. After each step the worker
compares its parameters with what they should be (`runners.comparisons`) and saves the sums.
`docs/method/sameness.md` says what each play shows.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import networks
from harness.proof.case import Case
from harness.proof.questions import (
    BATCHES,
    CALIBRATED,
    FIRST_BATCH,
    PLAIN,
    SMOOTH,
    TURNED,
    ZERO,
    head_of,
    trains_from_zero,
)
from harness.workers.failures import Failed
from harness.workers.files import AnswerFolder, arrays_in
from harness.workers.worker import Worker

# How many numbers say how a part, or a tensor, compares.
NUMBERS = {"gradients": 6, "momentum": 6, "masks": 2, "stands": 1, "changes": 1}

Arrays = dict[str, np.ndarray]


class Misfit(Failed):
    """A parameter is missing or has another shape, which NumPy might broadcast."""

    def __init__(self, reason: str):
        super().__init__("protocol", reason, answered=True)


@dataclass(frozen=True)
class Play:
    """What a worker answered: its losses, and what each step left behind, by step and name.

    `parameters` are those that were asked for whole. `sums` are by kind and name: see
    `runners.comparisons`. `hidden` says why the framework's running statistics cannot be read, if
    so.
    """

    losses: list[float]
    hidden: str
    parameters: list[Arrays]
    statistics: list[Arrays]
    sums: list[dict[str, Arrays]] = field(default_factory=list)


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
    first_seconds: float = 0.0  # of the first steps, in which some frameworks compile
    trained: int = 0  # steps of all plays, and between them


class Trainer:
    """Lets a worker that has built a network train, and reads what it saves in `folder`.

    Batches have their own numbers; in a `turned` ring each lies in the other's place.
    """

    def __init__(self, worker: Worker, case: Case, residence: str, limit: float,
                 folder: AnswerFolder):
        self.worker = worker
        self.begin = case.begin
        self.question = case.question
        # Several that train on the same cores wait busily for each other's threads.
        self.turn: AbstractContextManager[Any] = \
            case.questions.turn if case.task["device"] == "cpu" else nullcontext()
        self.residence = residence
        self.limit = limit
        self.folder = folder
        self.files = 0
        self.samples = self.question.file(TURNED if case.begin.turned else "samples")
        self.next = int(case.begin.turned)  # the batch that comes next
        self.trained = 0  # steps, with those that only reach a play's first batch
        self.first_seconds = 0.0

    @property
    def last(self) -> Path:
        """Where the last answer lies."""
        return self.folder.path(f"{self.files}.npz")

    def train(self, weights: Path | None, start: int, steps: int, prefix: str = "",
              compare: dict[str, Any] | None = None) -> Play:
        """Train `steps` steps. Raises Misfit, and Failed and Unsupported as the worker does.

        Without `compare` the parameters that each step leaves are answered whole.
        """
        self.files += 1
        asked = {} if compare is None else {"compare": compare}
        with self.turn:
            answer = self.worker.ask("train", self.limit, steps=steps,
                                     start=(start + self.begin.turned) % BATCHES,
                                     weights=(str(weights or ""), prefix),
                                     samples=(str(self.samples), self.begin.order),
                                     out=str(self.last), residence=self.residence, **asked)
        self.trained += (start - self.next) % BATCHES + steps
        self.next = (start + steps) % BATCHES
        self.first_seconds = answer.get("first_seconds", 0.0)
        network = self.question.network
        with self.folder.open(self.last.name, _most_bytes(network, steps, compare)) as file:
            found = _arrays(file)
        parameters, statistics, shapes = (
            [_named(found, f"{step}/{kind}/") for step in range(1, steps + 1)]
            for kind in ("parameters", "statistics", "shapes"))
        if compare is None:
            shapes = [{name: np.array(value.shape) for name, value in each.items()}
                      for each in parameters]
        read = (compare or {}).get("only") or network.parameter_shapes
        _refuse_misfits(network, read, shapes, statistics)
        sums = [{kind: _sums(found, f"{step}/{kind}/", count) for kind, count in NUMBERS.items()}
                for step in range(1, steps + 1)]
        return Play(answer["losses"], answer.get("hidden", ""), parameters, statistics, sums)


class Asking:
    """Says which comparisons each play of a proof asks the worker for."""

    def __init__(self, case: Case):
        self.case = case
        self.rate = case.network.learning_rate
        self.parts = [(part, name, rows.start, rows.stop) for part, name, rows in case.parts]
        # Ranks load what the first one has left from its file, and a strategy that keeps only sums
        # is judged by whole tensors.
        self.from_file = int(case.task.get("ranks", 1)) > 1
        self.whole = {"whole": None} if self.from_file or case.keeps_only_sums else {}

    def gradients(self, kind: str) -> dict[str, Any]:
        """Compare with the reference's gradients, and keep the steps for later plays."""
        plain = {"keep": kind, "statistics": True} if kind == PLAIN else {}
        if self.case.keeps_only_sums:
            return {**plain, **self.whole}
        self.case.answer(kind)
        file = str(self.case.questions.file_of_answer(self.case.question, kind))
        return {**plain, **self.whole,
                "gradients": {"file": file, "rate": self.rate, "parts": self.parts}}

    def zero(self) -> dict[str, Any]:
        return {"keep": ZERO, **(self.whole or {"only": self.case.trained_from(ZERO)})}

    def calibrated(self) -> dict[str, Any]:
        """Compare what must not move; the head comes whole."""
        head, names = head_of(self.case.network), self.case.network.parameter_shapes
        ours = [name for name in names if head and name.partition(".")[0] == head.name]
        return {"whole": ours, "changes": [name for name in names if head and name not in ours]}

    def again(self) -> dict[str, Any]:
        return {"masks": {"of": PLAIN, "rate": self.rate, "parts": self.parts}}

    def own(self, kind: str, step: int) -> dict[str, Any]:
        """Compare a step without momentum from what a step of a kept play left."""
        names = self.case.trained_from(kind)
        return {"from": (kind, step), **({"only": names} if kind == ZERO else {}),
                "momentum": {"of": kind, "step": step, "names": names,
                             "momentum": self.case.network.momentum}}


@contextmanager
def played(worker: Worker, case: Case, residence: str, steps: int, limit: float
           ) -> Iterator[Plays]:
    """Let a worker that has built its network make all plays of a proof.

    Raises Misfit, and Failed and Unsupported as the worker does.
    """
    question, asking = case.question, Asking(case)
    with AnswerFolder(question.folder) as folder:
        trainer = Trainer(worker, case, residence, limit, folder)

        def of(kind: str, steps: int, compare: dict[str, Any]) -> Play:
            return trainer.train(question.file(kind), FIRST_BATCH[kind], steps, compare=compare)

        def own_steps_of(kind: str, answer: Path) -> list[Play]:
            file = answer if asking.from_file else None
            starts = {step: (FIRST_BATCH[kind] + step) % BATCHES for step in range(1, steps)}
            order = sorted(starts, reverse=starts.get(1) != trainer.next)
            return [trainer.train(file, starts[step], 1, f"{step}/parameters/",
                                  asking.own(kind, step)) for step in order]

        # In an order in which each play begins with the batch that comes next: else the worker
        # trains a step to get there. The last one moves all tensors, whose copies are compared.
        dropout = question.network.has_dropout
        plain = of(PLAIN, 1 if dropout else steps, asking.gradients(PLAIN))
        answer = trainer.last
        calibrated = of(CALIBRATED, 1, asking.calibrated())
        smooth = of(SMOOTH, 1, asking.gradients(SMOOTH)) if SMOOTH in question.kinds else None
        again, zero = of(PLAIN, 1, asking.again()) if dropout else None, None
        if trains_from_zero(question.network):
            zero = of(ZERO, steps, asking.zero())
            own = own_steps_of(ZERO, trainer.last)
        else:
            own = [] if dropout else own_steps_of(PLAIN, answer)
        yield Plays(plain, calibrated, smooth, zero, own, again, trainer.first_seconds,
                    trainer.trained)


def _most_bytes(network: networks.Network, steps: int, compare: dict[str, Any] | None) -> int:
    """Return more than `steps` steps can take: two float64 for each parameter, and names.

    Sums have several names for each tensor, and more for the gates of an LSTM.
    """
    names = 2048 if compare is None else 16384
    return steps * (16 * network.parameter_count + names * len(network.parameter_shapes)) + 65536


def _arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Map the arrays that a worker saved. Raises Failed."""
    found = arrays_in(file)
    if not found:
        raise Failed("protocol", "the file of answers holds no array")
    for name, value in found.items():
        if value.dtype.kind != "f":
            raise Failed("protocol", f"the file of answers: {name}: came {value.dtype}, expected "
                                     "floating point")
    return found


def _refuse_misfits(network: networks.Network, read: Iterable[str], shapes: list[Arrays],
                    statistics: list[Arrays]) -> None:
    wanted = network.parameter_shapes
    for found in shapes:
        for name in read:
            shape = wanted[name]
            if name not in found:
                raise Misfit(f"no parameter of {name} was answered")
            if (came := tuple(map(int, found[name]))) != shape:
                raise Misfit(f"the parameter of {name} has shape {came}, not {shape}")
    for found in statistics:
        for name, value in found.items():
            right = wanted.get(f"{name.partition('.')[0]}.scale")
            if value.shape != right:
                raise Misfit(f"the running statistic {name} has shape {value.shape}, not {right}")


def _sums(found: Arrays, prefix: str, count: int) -> Arrays:
    """Return sums by name. Raises Failed if they cannot be sums of so many squares."""
    sums = _named(found, prefix)
    for name, value in sums.items():
        # The first product of six is not of a number with itself.
        if value.shape != (count,) or (value[count == 6:] < 0).any():
            raise Failed("protocol", f"the file of answers: {prefix}{name}: came "
                                     f"{value.tolist()}, expected sums")
    return sums


def _named(found: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in found.items()
            if name.startswith(prefix)}
