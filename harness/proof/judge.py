"""The judge of sameness: a worker's answers against the NumPy float64 reference, from the same weights and the same batches.

Compared are the built parameters, the loss, every gradient (relative L2 error a tensor) and where several optimiser steps lead.
The tolerances follow from the precision (`analysis.proof.tolerances`); the argument is in docs/method/sameness.md.
"""

import math
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import networks
from analysis.proof.tolerances import LATER, LATER_STEPS, LOSSY, Tolerance, kinks_of, tolerance_of
from harness.data import arrays
from harness.proof import copies, distances
from harness.workers.alive import LiveWorkers
from harness.workers.cores import THREAD_VARIABLES, cores
from harness.workers.worker import Failed, Unsupported, Worker
from networks import work

DRAWS = 3  # of weights and batches, before a gradient that a kink could explain counts as different
MANY_ACTIVATIONS = 30_000_000  # bytes a sample: above, some pre-activations always lie at a kink (GoogLeNet 40 MB, VGG-16 115)
FP32_TRAJECTORY = 0.1  # kinks turn while a network trains: found 0.03 (ResNet-56); Nesterov's momentum is 0.4 off after three steps
FIRST_SUM = 0.05  # how far the sum of a first step may be off whose strategy has no other limit; found 0.002 in 11 networks
OTHER_OPTIMISER = "the optimiser differs"
REFERENCE = "runners.reference.runner"
OF_REFERENCE = "the reference: "  # opens the reason where its own worker failed, of which the framework is innocent
REFERENCE_THREADS = 8  # of NumPy's products; more gain little, and several references may be at work
# The reference's layers each ask for new memory and return it. glibc hands large blocks back to the kernel, whose fresh pages then
# took half the time of AlexNet's backward pass; so the worker keeps them (mallopt(3)).
KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@dataclass(frozen=True)
class Question:
    """What a check asks: the network, and the files and settings that every runner and the reference share."""

    network: networks.Network
    batch: int  # of one device
    devices: int
    steps: int
    weights: Path
    batches: Path
    reference: Path  # where the reference's answers lie
    limit: float


@dataclass(frozen=True)
class Verdict:
    """The outcome for one framework and network. Errors are NaN where the worker did not get so far."""

    verdict: str  # same, different, unsupported
    reason: str = ""
    parameters: int = 0
    loss_error: float = math.nan
    gradient_error: float = math.nan
    trajectory_error: float = math.nan
    copies_error: float = math.nan  # of several devices, where their copies are not equal in every bit
    failure: str = ""  # the kind, where the worker failed instead of answering

    @property
    def may_pass(self) -> bool:
        """Whether the check failed for want of memory, which other workers may have held, or for want of the reference's answer."""
        return self.failure == "out_of_memory" or (bool(self.failure) and self.reason.startswith(f"{self.failure}: {OF_REFERENCE}"))


class Judge:
    """Answers of the reference, computed once a draw of weights and batches and kept as files in `folder`."""

    def __init__(self, folder: Path, batch: int, steps: int, seed: int, limit: float):
        self.folder = folder
        self.batch = batch
        self.steps = steps
        self.seed = seed
        self.limit = limit
        self.losses: dict[Path, list[float]] = {}
        self.locks: dict[Path, threading.Lock] = {}  # one a question: several checks may ask the same one at a time
        self.live = LiveWorkers()

    def judge(self, worker: Worker, network: networks.Network, task: Mapping[str, Any]) -> Verdict:
        """Ask `worker` for its check of `network` under `task` (device, threads, precision, tuning) and compare.

        A gradient may miss its tolerance because rounding turned ReLUs or maxima: a single one in fp32, many in precisions of fewer
        bits. That is told from a fault by drawing weights and batches anew: a fault shows on every draw.
        """
        for draw in range(DRAWS):
            question = self._question(network, draw, int(task.get("devices", 1)))
            with self._asked_once(question):
                self._draw(question, self.seed + draw)
            verdict = self._judge(worker, question, task)
            if not self._may_be_a_kink(network, verdict, str(task["precision"])):
                break
        return verdict

    def _judge(self, worker: Worker, question: Question, task: Mapping[str, Any]) -> Verdict:
        answers = self.folder / f"answers-{worker.token}.npz"
        try:
            parameters, losses = _ask(worker, question, task, question.steps, answers)
            with self._asked_once(question):
                self._answer_reference(question)
            verdict = self._compare(question, parameters, losses, answers, task)
            if OTHER_OPTIMISER in verdict.reason:
                _ask(worker, question, task, 1, answers)
                verdict = replace(verdict, reason=f"{verdict.reason}; {_first_step(question, answers)}")
            if question.devices == 1:
                return verdict
            verdict = _with_copies(verdict, worker, question)
            if verdict.verdict == "same" and _is_unbounded(task):
                _ask(worker, question, task, 1, answers)
                verdict = _with_first_sum(verdict, question, answers, str(task["precision"]))
            if verdict.verdict == "same" and task.get("strategy", "") in LATER:
                _ask(worker, question, task, LATER_STEPS, answers)
                verdict = self._with_later_moves(verdict, question, answers, task)
            return verdict
        except Unsupported as refusal:
            return Verdict("unsupported", str(refusal))
        except Failed as failure:
            return Verdict("different", str(failure), failure=failure.kind)
        finally:
            answers.unlink(missing_ok=True)

    def _question(self, network: networks.Network, draw: int, devices: int) -> Question:
        stem = self.folder / (f"check-{network.name}-{draw}" if devices == 1 else f"check-{network.name}-x{devices}-{draw}")
        files = {kind: stem.with_suffix(f".{kind}.npz") for kind in ("weights", "batches", "reference")}
        return Question(network, self.batch, devices, self.steps, **files, limit=self.limit)

    def _asked_once(self, question: Question) -> threading.Lock:
        """The lock under which a question's files and its answer are made; other questions need not wait for them."""
        return self.locks.setdefault(question.reference, threading.Lock())

    def _draw(self, question: Question, seed: int) -> None:
        """Write the weights and batches of a question, once; batches are for all devices."""
        if question.batches.exists():
            return
        network = question.network
        weights = arrays.draw_weights(network, seed)
        if question.devices > 1 or work.activation_bytes(network) > MANY_ACTIVATIONS:  # ResNet-56 on four: a kink in each draw
            weights = arrays.away_from_kinks(network, weights)
        arrays.save_weights(question.weights, weights)
        arrays.save_batches(question.batches, *arrays.synthetic_batches(network, question.batch * question.devices, 2, seed))

    def _answer_reference(self, question: Question) -> None:
        if question.reference in self.losses:
            return
        sharded = question.network.has_batch_norm  # each device normalises its own samples, in every framework
        asked = question if sharded else replace(question, batch=question.batch * question.devices, devices=1)
        # Shards have a thread each, and their products would wait for one another if they had several. Nothing is timed meanwhile.
        threads = len(cores(REFERENCE_THREADS)) if asked.devices == 1 else 1
        variables = {**KEEP_MEMORY, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        task = {"device": "cpu", "threads": threads, "precision": "fp32", "tuning": "stock", "devices": asked.devices}
        log = question.reference.with_suffix(".log")
        try:
            with Worker(sys.executable, REFERENCE, log, variables) as worker, self.live.holding(worker):
                _, self.losses[question.reference] = _ask(worker, asked, task, question.steps, question.reference)
        except Failed as failure:
            raise Failed(failure.kind, f"{OF_REFERENCE}{failure.reason}") from None

    def _with_later_moves(self, verdict: Verdict, question: Question, answers: Path, task: Mapping[str, Any]) -> Verdict:
        """Refuse a verdict where too little of what the steps after a strategy's whole ones should move has arrived."""
        whole, allowed = LATER[task["strategy"]]
        before, after = (replace(question, steps=steps, reference=question.reference.with_suffix(f".{steps}.npz"))
                         for steps in (whole, LATER_STEPS))
        for each in (before, after):
            with self._asked_once(each):
                self._answer_reference(each)
        files = (arrays.mapped(file) for file in (answers, before.reference, after.reference, question.weights))
        errors = distances.later_errors(question.network, whole, tuple(files))
        exact = _limits(question.network, str(task["precision"]), 0.0)
        limits = {name: max(allowed, exact[name].trajectory) for name in errors}
        if strays := [name for name, error in errors.items() if not error <= limits[name]]:
            worst = max(strays, key=lambda name: _nan_last(errors[name]))
            reason = (f"steps {whole + 1} to {LATER_STEPS}, whose gradients are not sent whole, have moved {worst} otherwise "
                      f"(relative error {errors[worst]:.2g}, allowed {limits[worst]:.2g}, 1 if nothing arrived)")
            return replace(verdict, verdict="different", reason=reason)
        return verdict

    def _may_be_a_kink(self, network: networks.Network, verdict: Verdict, precision: str) -> bool:
        """Say whether the loss is right and the gradients are off in a network with kinks: another draw tells.

        How far they are off says nothing: one window of CaffeNet's last pooling that took another maximum, in one draw and in two
        frameworks alike, spoiled the gradients before it by 2 %.
        """
        kinks = kinks_of(network.name)
        if verdict.verdict == "same" or not verdict.loss_error <= tolerance_of(precision).loss:
            return False
        return kinks > 0 and verdict.gradient_error > tolerance_of(precision, 0 if precision == "fp32" else kinks).gradient

    def _compare(self, question: Question, parameters: int, losses: list[float], answers: Path, task: Mapping[str, Any]) -> Verdict:
        network = question.network
        precision = str(task["precision"])
        limits = _limits(network, precision, LOSSY.get(task.get("strategy", ""), 0.0))
        wanted = self.losses[question.reference]
        loss_error = abs(losses[0] - wanted[0]) / abs(wanted[0])
        ours, reference, start = _mapped(question, answers)
        if misfit := _misfit(network, ours):
            return Verdict("different", misfit, parameters, loss_error)
        gradients = distances.gradient_errors(network, ours, reference)
        moves = {
            name: distances.move_error(ours[f"parameter/{name}"], reference[f"parameter/{name}"], start[name], question.steps)
            for name in network.parameter_shapes
        }
        gradient_error, trajectory_error = _largest(gradients), _largest(moves)
        reasons = []
        if parameters != network.parameter_count:
            reasons.append(f"{parameters:,} parameters for {network.parameter_count:,}")
        if not loss_error <= tolerance_of(precision).loss:
            reasons.append(f"loss {losses[0]:.6g} for {wanted[0]:.6g}")
        if strays := [name for name, error in gradients.items() if not error <= limits[name].gradient]:
            reasons.append(_name_gradients(network, gradients, strays, limits) + _wrong_scale(question, ours, reference))
        elif strays := [name for name, error in moves.items() if not error <= limits[name].trajectory]:
            worst = max(strays, key=lambda name: _nan_last(moves[name]))
            reasons.append(f"gradients agree, but after {question.steps} steps {worst} has moved otherwise "
                           f"(relative error {moves[worst]:.2g}, allowed {limits[worst].trajectory:.2g}): {OTHER_OPTIMISER}")
        return Verdict("different" if reasons else "same", "; ".join(reasons), parameters, loss_error, gradient_error,
                       trajectory_error)


def _mapped(question: Question, answers: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A worker's answers, the reference's, and the weights that both started from."""
    return arrays.mapped(answers), arrays.mapped(question.reference), arrays.mapped(question.weights)


def _with_copies(verdict: Verdict, worker: Worker, question: Question) -> Verdict:
    """Add to a verdict what the devices' copies of the parameters say."""
    found = copies.compare(worker, question.devices, question.limit)
    verdict = replace(verdict, copies_error=found.error)
    if not found.fault:
        return verdict
    return replace(verdict, verdict="different", reason="; ".join(filter(None, [verdict.reason, found.fault])))


def _is_unbounded(task: Mapping[str, Any]) -> bool:
    """Whether a task's strategy may move every tensor as it likes."""
    return math.isinf(LOSSY.get(task.get("strategy", ""), 0.0))


def _with_first_sum(verdict: Verdict, question: Question, answers: Path, precision: str) -> Verdict:
    """Refuse a verdict where the first step does not add up to the exact one's: two means in a block's place keep its sum.

    Judged is the tensor whose gradient cancels least in its sum.
    """
    ours, reference, start = _mapped(question, answers)
    sums = {name: distances.sums_of(lambda gradient: (gradient, np.square(gradient)), reference[f"gradient/{name}"])
            for name in question.network.parameter_shapes}
    name = max(sums, key=lambda name: distances.quotient(abs(sums[name][0]), math.sqrt(sums[name][1])))
    (moved,) = distances.sums_of(lambda start, ours: (start - ours,), start[name], ours[f"parameter/{name}"])
    ratio = moved / (question.network.learning_rate * sums[name][0])
    if abs(ratio - 1) <= max(FIRST_SUM, tolerance_of(precision, kinks_of(question.network.name)).gradient):
        return verdict
    reason = f"the first step adds up to {ratio:.3g} times the right one's sum in {name}"
    if abs(ratio / question.devices - 1) < FIRST_SUM:
        reason += f": the sum over {question.devices} devices instead of the mean"
    return replace(verdict, verdict="different", reason=reason)


def _wrong_scale(question: Question, ours: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> str:
    """Say where the gradients of several devices are so many times too large: added up and not averaged."""
    if question.devices == 1:
        return ""
    name = f"gradient/{_largest_parameter(question.network)}"
    along, square = distances.sums_of(lambda ours, wanted: (ours * wanted, np.square(wanted)), ours[name], reference[name])
    ratio = distances.quotient(along, square)
    if abs(ratio / question.devices - 1) < 0.01:
        return f": they are {question.devices} times too large, the sum over {question.devices} devices instead of the mean"
    return ""


def _largest_parameter(network: networks.Network) -> str:
    return max(network.parameter_shapes, key=lambda name: math.prod(network.parameter_shapes[name]))


def _first_step(question: Question, answers: Path) -> str:
    """Name the optimiser by its first step: -lr g for plain momentum, (1 + m) times that for Nesterov's."""
    network = question.network
    name = _largest_parameter(network)
    ours, reference, start = _mapped(question, answers)
    along, square = distances.sums_of(lambda start, ours, gradient: ((start - ours) * gradient, np.square(gradient)),
                                      start[name], ours[f"parameter/{name}"], reference[f"gradient/{name}"])
    ratio = distances.quotient(along, square) / network.learning_rate
    if abs(ratio - 1) < 0.01:
        return "its first step is right, so the momentum differs"
    if abs(ratio - 1 - network.momentum) < 0.01:
        return f"its first step is {ratio:.2f} times as long: Nesterov momentum"
    return f"its first step is {ratio:.3g} times as long: learning rate {ratio * network.learning_rate:.3g}, " \
           f"not {network.learning_rate}"


def _ask(worker: Worker, question: Question, task: Mapping[str, Any], steps: int, out: Path) -> tuple[int, list[float]]:
    limit = question.limit
    built = worker.ask("build", limit, network=question.network.to_json(), batch=question.batch, dropout=False, **task)
    worker.ask("load", limit, weights=str(question.weights))
    worker.ask("feed", limit, batches=str(question.batches), residence="device")
    return built["parameters"], worker.ask("check", limit, steps=steps, out=str(out))["losses"]


def _name_gradients(network: networks.Network, errors: dict[str, float], strays: list[str], limits: dict[str, Tolerance]) -> str:
    """Say which gradients stray; the last layer among them is where the fault begins, for errors travel from the loss backwards."""
    last = strays[-1]
    return (f"{len(strays)} of {len(errors)} gradients differ, from the loss backwards first {last} "
            f"({network.layer(last.partition('.')[0]).op}, relative error {errors[last]:.2g}, allowed {limits[last].gradient:.2g})")


def _limits(network: networks.Network, precision: str, lossy: float) -> dict[str, Tolerance]:
    """How far each tensor's gradient and move may be off. In fp32 as in a network without kinks: a kink is met by drawing anew.

    But of very many pre-activations some lie at a kink on every draw, and nothing but batch norm's shifts moves them away. A turned
    kink spoils the gradients of the layers before it and leaves those behind it alone; wrong arithmetic or another optimiser spoils
    all. So without batch norm, the half of such a network's tensors that is far from the loss may be off by what kinks explain.
    Where the strategy is `lossy`, every move may be off by as much as that.
    """
    kinked = tolerance_of(precision, kinks_of(network.name))
    if precision != "fp32":
        return dict.fromkeys(network.parameter_shapes, replace(kinked, trajectory=max(kinked.trajectory, lossy)))
    limits = dict.fromkeys(network.parameter_shapes, replace(tolerance_of("fp32"), trajectory=max(FP32_TRAJECTORY, lossy)))
    if work.activation_bytes(network) > MANY_ACTIVATIONS and not any(layer.op == "batch_norm" for layer in network.layers):
        far = list(limits)[:len(limits) // 2]
        limits.update(dict.fromkeys(far, replace(kinked, trajectory=math.inf)))
    return limits


def _misfit(network: networks.Network, ours: Mapping[str, np.ndarray]) -> str:
    """Name the first answer that is missing or of another shape; NumPy would broadcast some of these, and raise on others."""
    for name, shape in network.parameter_shapes.items():
        for kind in ("gradient", "parameter"):
            if f"{kind}/{name}" not in ours:
                return f"no {kind} of {name} was answered"
            if (found := ours[f"{kind}/{name}"].shape) != shape:
                return f"the {kind} of {name} has shape {found}, not {shape}"
    return ""


def _largest(errors: dict[str, float]) -> float:
    return max(errors.values(), key=_nan_last)


def _nan_last(error: float) -> float:
    return math.inf if math.isnan(error) else error
