"""What the proof asks of every runner: weights, samples, and the reference's answers to them.

A question belongs to a network, a number of samples of each device and a number of devices. Its
files are written once and serve every framework, precision, tuning and batch.
"""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import networks
from harness.data import arrays
from harness.proof.distances import norms_of
from harness.workers.alive import LiveWorkers
from harness.workers.worker import Failed, Worker
from networks.work import matrix_products
from runners.resources import THREAD_VARIABLES, cores

ANSWERS = "runners.reference.answers"
OF_REFERENCE = "the reference: "  # begins the reason if the reference failed, not the framework
REFERENCE_THREADS = 8  # more gain little, and several references may run
REFERENCE_TASK = {"device": "cpu", "precision": "fp32", "tuning": "stock", "dropout": False}
# Multiply-adds of a step. Below, threads of OpenBLAS wait busily for each other: tiny_vit took four
# times a processor's time.
SMALL = 2**27
# glibc returns the large blocks that layers free to the kernel, and new pages took half the time of
# AlexNet's backward pass; so the worker keeps them (mallopt(3)).
KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0",
               "MALLOC_TRIM_THRESHOLD_": str(2**40)}
BATCHES = 2
PLAIN, SMOOTH, CALIBRATED, ZERO = "plain", "smooth", "calibrated", "zero"
MASKS = 16  # runs with random dropout masks
# Training begins with this batch. Batch 0 repeats samples in blocks and batch 1 interleaves them,
# so a runner that trains on a part of each batch, or on one batch, differs in one of the two.
FIRST_BATCH = {PLAIN: 0, SMOOTH: 0, CALIBRATED: 1, ZERO: 1}
# The samples with the two batches in each other's place: the same questions at the other steps.
TURNED = "turned"

Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class Question:
    """One draw of weights and samples. `samples` counts those of one device."""

    network: networks.Network
    samples: int
    devices: int
    draw: int
    folder: Path

    @property
    def kinds(self) -> tuple[str, ...]:
        """The weights whose gradients the reference knows."""
        return (PLAIN, SMOOTH) if self.network.has_batch_norm else (PLAIN,)

    def file(self, name: str) -> Path:
        """Return the place of a file of this question."""
        several = f"-x{self.devices}" if self.devices > 1 else ""
        stem = f"proof-{self.network.name}{several}-s{self.samples}-{self.draw}"
        return self.folder / f"{stem}.{name}.npz"


def samples_of(batch: int, most: int) -> int:
    """Return how many samples a batch repeats: the largest divisor of `batch` up to `most`."""
    return next(count for count in range(min(batch, most), 0, -1) if batch % count == 0)


def head_of(network: networks.Network) -> networks.Layer | None:
    """Return the layer whose weights at zero make all logits zero: the proof's zero point.

    That is the last layer where it has weights of its own, or the norm before a tied head.
    """
    last = network.layers[-1]
    if last.op == "tied_dense":
        before = network.layer(last.inputs[0])
        return before if before.op == "layer_norm" else None
    return last if last.op in ("dense", "linear") else None


def trains_from_zero(network: networks.Network) -> bool:
    """Return whether only the head's bias trains from zero weights, for all dropout masks.

    This is asked of networks with dropout: the second step from other weights would show the masks.
    A sigmoid of zero is not zero, so masks would show behind it.
    """
    sigmoids = any(layer.op == "sigmoid" for layer in network.layers)
    head = head_of(network)
    return network.has_dropout and head is not None and head.op == "dense" and not sigmoids


class Questions:
    """Writes questions and asks the reference, each once; several may be asked at a time."""

    def __init__(self, folder: Path, seed: int, limit: float, live: LiveWorkers):
        self.folder = folder
        self.seed = seed
        self.limit = limit
        self.live = live
        self.known: dict[Path, dict[str, Any]] = {}
        self.norms: dict[Path, float] = {}
        self.locks: dict[Path, threading.Lock] = {}
        self.turn = threading.Lock()  # of workers that train on the same cores

    def question(self, network: networks.Network, samples: int, devices: int,
                 draw: int) -> Question:
        """Return a question whose weights and samples are written."""
        question = Question(network, samples, devices, draw, self.folder)
        with self._once(question.file("samples")):
            if not question.file("samples").exists():
                self._draw(question)
        return question

    def answer(self, question: Question, kind: str, steps: int = 1) -> tuple[float, Answer]:
        """Return the reference's loss and mapped arrays for one kind of weights.

        `gradient/` holds the first batch's, where logits are zero only the head's; `statistic/` the
        running statistics after one step and `parameter/` the parameters after several `steps`.
        Raises Failed.
        """
        file, head = self.file_of_answer(question, kind, steps), head_of(question.network)
        alone = {"head": head.name} if head and kind == CALIBRATED else {}
        answer = self._asked(file, question, kind, "answer", steps=steps, out=str(file), **alone)
        return answer["losses"][0], arrays.mapped(file)

    def file_of_answer(self, question: Question, kind: str, steps: int = 1) -> Path:
        """Return where `answer` keeps its arrays."""
        return question.file(f"{kind}-answer-{steps}")

    def norm_of_gradient(self, question: Question, part: str, name: str, rows: slice) -> float:
        """Return the L2 norm of a part of PLAIN's gradients, added up once a question."""
        key = question.file(f"{PLAIN}-{part}")
        if key not in self.norms:
            _, answer = self.answer(question, PLAIN)
            (self.norms[key],) = norms_of(lambda gradient: (gradient,),
                                          answer[f"gradient/{name}"][rows])
        return self.norms[key]

    def masks(self, question: Question) -> dict[str, Any]:
        """Return what random dropout masks do to the gradients, as `Answers.masks` says."""
        return self._asked(question.file("masks"), question, PLAIN, "masks", runs=MASKS,
                           seed=self.seed)

    def masked_head(self, question: Question) -> tuple[float, float]:
        """Return what dropout masks do to the head's calibrated gradient: mean and deviation."""
        found = self._asked(question.file("masked-head"), question, CALIBRATED, "masked_head",
                            runs=MASKS, seed=self.seed)
        return found["mean"], found["deviation"]

    def spread(self, question: Question, kind: str, precision: str, runs: int) -> dict[str, Any]:
        """Return the largest errors of random rounding, as `Answers.spread` says."""
        with self._reference(question, kind) as worker:
            return worker.ask("spread", self.limit, precision=precision, runs=runs,
                              seed=question.draw)

    def _asked(self, file: Path, question: Question, kind: str, command: str,
               **arguments: Any) -> dict[str, Any]:
        """Ask the reference, the first time; return its answer, which `file` stands for."""
        with self._once(file):
            if file not in self.known:
                with self._reference(question, kind) as worker:
                    self.known[file] = worker.ask(command, self.limit, **arguments)
        return self.known[file]

    def _once(self, file: Path) -> threading.Lock:
        return self.locks.setdefault(file, threading.Lock())

    def _draw(self, question: Question) -> None:
        network, seed = question.network, self.seed + question.draw
        plain = arrays.draw_weights(network, seed)
        weights = {PLAIN: plain, CALIBRATED: calibrated(network, plain)}
        if network.has_batch_norm:
            weights[SMOOTH] = arrays.away_from_kinks(network, plain)
        if trains_from_zero(network):
            weights[ZERO] = {name: np.zeros_like(value) for name, value in plain.items()}
        for kind, each in weights.items():
            arrays.save_weights(question.file(kind), each)
        whole = question.samples * question.devices
        ring = arrays.synthetic_batches(network, whole, BATCHES, seed)
        shares = [each.reshape(BATCHES, question.devices, question.samples, *each.shape[2:])
                  for each in ring]
        turned = [np.roll(each, 1, axis=0) for each in shares]
        arrays.save_batches(question.file(TURNED), *turned)
        # The last file: it says that all are written.
        arrays.save_batches(question.file("samples"), *shares)

    @contextmanager
    def _reference(self, question: Question, kind: str) -> Iterator[Worker]:
        """Lend a worker of the reference that has built and loaded one kind of weights."""
        network, devices, samples = question.network, question.devices, question.samples
        if not network.has_batch_norm:  # else each device normalizes its own samples
            devices, samples = 1, samples * devices
        work = sum(each.multiply_adds for each in matrix_products(network, samples))
        # Each shard has one thread: with several, their products would wait for each other.
        threads = len(cores(REFERENCE_THREADS)) if devices == 1 and work > SMALL else 1
        log = question.file(kind).with_suffix(".log")
        with blaming_reference(), reference(ANSWERS, log, self.live, threads) as worker:
            worker.ask("build", self.limit, network=network.to_json(), batch=samples,
                       threads=threads, devices=devices, **REFERENCE_TASK)
            worker.ask("ask", self.limit, weights=str(question.file(kind)),
                       samples=str(question.file("samples")), first=FIRST_BATCH[kind])
            yield worker


@contextmanager
def reference(module: str, log: Path, live: LiveWorkers, threads: int = REFERENCE_THREADS
              ) -> Iterator[Worker]:
    """Lend a worker of the reference, in the driver's own Python, with `threads` at most."""
    threads = len(cores(threads))
    variables = {**KEEP_MEMORY, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    with Worker(sys.executable, module, log, variables) as worker, live.holding(worker):
        yield worker


@contextmanager
def blaming_reference() -> Iterator[None]:
    """Let failures within the block say that the reference failed, not the framework."""
    try:
        yield
    except Failed as failure:
        raise Failed(failure.kind, f"{OF_REFERENCE}{failure.reason}") from None


def calibrated(network: networks.Network, weights: Mapping[str, np.ndarray]
               ) -> dict[str, np.ndarray]:
    """Return the weights with those of the head at zero, where the network has one.

    The logits are zero then, so the gradient of the head's bias or shift is known and all
    gradients below it are zero: exactly, in every precision.
    """
    head = head_of(network)
    ours = {f"{head.name}.{name}" for name in head.parameters} if head else set()
    return {name: np.zeros_like(value) if name in ours else value
            for name, value in weights.items()}


def bias_gradient(question: Question) -> np.ndarray:
    """Return the calibrated gradient of the head's bias: the mean of 1/K - [y = k], float64.

    That of the norm's shift before a tied head is this times the table.
    """
    targets = arrays.mapped(question.file("samples"))["targets"][FIRST_BATCH[CALIBRATED]]
    counts = np.bincount(targets.ravel(), minlength=question.network.classes)
    gradient: np.ndarray = 1 / question.network.classes - counts / targets.size
    if tied := question.network.layers[-1].attributes.get("tied"):
        gradient = gradient @ arrays.mapped(question.file(CALIBRATED))[f"{tied}.weight"]
    return gradient


