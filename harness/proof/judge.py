"""Judges sameness: a worker's answers against the NumPy float64 reference on the same inputs.

It compares the number of parameters, the loss, every gradient (relative L2 error of a tensor) and
where several optimizer steps lead. The tolerances follow from the precision
(`analysis.proof.tolerances`); docs/method/sameness.md explains them.
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

DRAWS = 3  # of weights and batches, before a gradient that a kink could explain is different
# Bytes of a sample: above, some pre-activations always lie at a kink (GoogLeNet 40 MB, VGG-16 115).
MANY_ACTIVATIONS = 30_000_000
# Kinks turn while a network trains: found 0.03 (ResNet-56). After three steps Nesterov momentum is
# 0.4 off.
FP32_TRAJECTORY = 0.1
# For the sum of a first step, if the strategy has no other limit; found 0.002 in 11 networks.
FIRST_SUM = 0.05
OTHER_OPTIMISER = "the optimiser differs"
REFERENCE = "runners.reference.runner"
Tensors = dict[str, np.ndarray]
OF_REFERENCE = "the reference: "  # begins the reason if the reference failed, not the framework
REFERENCE_THREADS = 8  # more gain little, and several references may run
# glibc returns the large blocks that layers free to the kernel, and new pages took half the time of
# AlexNet's backward pass; so the worker keeps them (mallopt(3)).
KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0",
               "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@dataclass(frozen=True)
class Question:
    """What a check asks every runner and the reference: network, files and settings."""

    network: networks.Network
    batch: int  # of one device
    devices: int
    steps: int
    weights: Path
    batches: Path
    reference: Path  # the reference's answers
    limit: float


@dataclass(frozen=True)
class Verdict:
    """The outcome for one framework and network. Errors are NaN if they were not measured."""

    verdict: str  # same, different, unsupported
    reason: str = ""
    parameters: int = 0
    loss_error: float = math.nan
    gradient_error: float = math.nan
    trajectory_error: float = math.nan
    copies_error: float = math.nan  # of several devices whose copies are not equal in every bit
    failure: str = ""  # the kind, where the worker failed instead of answering

    @property
    def may_pass(self) -> bool:
        """Whether repeating the check may help: memory ran out, or the reference failed."""
        of_reference = self.reason.startswith(f"{self.failure}: {OF_REFERENCE}")
        return self.failure == "out_of_memory" or (bool(self.failure) and of_reference)


class Judge:
    """Compares workers with the reference, whose answers to each draw it keeps in `folder`."""

    def __init__(self, folder: Path, batch: int, steps: int, seed: int, limit: float):
        self.folder = folder
        self.batch = batch
        self.steps = steps
        self.seed = seed
        self.limit = limit
        self.losses: dict[Path, list[float]] = {}
        self.locks: dict[Path, threading.Lock] = {}  # one for each question, for parallel checks
        self.live = LiveWorkers()

    def judge(self, worker: Worker, network: networks.Network, task: Mapping[str, Any]) -> Verdict:
        """Let `worker` check `network` under `task` (device, threads, precision, tuning); compare.

        A gradient may miss its tolerance because rounding turned ReLUs or maxima: one in fp32, many
        in lower precisions. New weights and batches show it, because a fault shows on every draw.
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
                reason = f"{verdict.reason}; {_first_step(question, answers)}"
                verdict = replace(verdict, reason=reason)
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
        several = f"-x{devices}" if devices > 1 else ""
        stem = self.folder / f"check-{network.name}{several}-{draw}"
        files = {kind: stem.with_suffix(f".{kind}.npz")
                 for kind in ("weights", "batches", "reference")}
        return Question(network, self.batch, devices, self.steps, **files, limit=self.limit)

    def _asked_once(self, question: Question) -> threading.Lock:
        """Return the lock for making a question's files and its answer."""
        return self.locks.setdefault(question.reference, threading.Lock())

    def _draw(self, question: Question, seed: int) -> None:
        """Write the weights and batches of a question, once; batches are for all devices."""
        if question.batches.exists():
            return
        network = question.network
        weights = arrays.draw_weights(network, seed)
        # ResNet-56 on four devices has a kink in each draw.
        if question.devices > 1 or work.activation_bytes(network) > MANY_ACTIVATIONS:
            weights = arrays.away_from_kinks(network, weights)
        arrays.save_weights(question.weights, weights)
        whole = question.batch * question.devices
        batches = arrays.synthetic_batches(network, whole, 2, seed)
        arrays.save_batches(question.batches, *batches)

    def _answer_reference(self, question: Question) -> None:
        if question.reference in self.losses:
            return
        asked = question
        if not question.network.has_batch_norm:  # else each device normalizes its own samples
            asked = replace(question, batch=question.batch * question.devices, devices=1)
        # Each shard has one thread: with several, their products would wait for each other.
        threads = len(cores(REFERENCE_THREADS)) if asked.devices == 1 else 1
        variables = {**KEEP_MEMORY, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        task = {"device": "cpu", "threads": threads, "precision": "fp32", "tuning": "stock",
                "devices": asked.devices}
        log = question.reference.with_suffix(".log")
        try:
            with (Worker(sys.executable, REFERENCE, log, variables) as worker,
                  self.live.holding(worker)):
                _, losses = _ask(worker, asked, task, question.steps, question.reference)
        except Failed as failure:
            raise Failed(failure.kind, f"{OF_REFERENCE}{failure.reason}") from None
        self.losses[question.reference] = losses

    def _with_later_moves(self, verdict: Verdict, question: Question, answers: Path,
                          task: Mapping[str, Any]) -> Verdict:
        """Refuse a verdict if the steps after a strategy's whole ones moved too little."""
        whole, allowed = LATER[task["strategy"]]
        file = question.reference
        before, after = (replace(question, steps=steps, reference=file.with_suffix(f".{steps}.npz"))
                         for steps in (whole, LATER_STEPS))
        for each in (before, after):
            with self._asked_once(each):
                self._answer_reference(each)
        files = (answers, before.reference, after.reference, question.weights)
        mapped = tuple(arrays.mapped(file) for file in files)
        errors = distances.later_errors(question.network, whole, mapped)
        exact = _limits(question.network, str(task["precision"]), 0.0)
        limits = {name: max(allowed, exact[name].trajectory) for name in errors}
        if strays := [name for name, error in errors.items() if not error <= limits[name]]:
            worst = max(strays, key=lambda name: _nan_last(errors[name]))
            reason = (f"steps {whole + 1} to {LATER_STEPS}, whose gradients are not sent whole, "
                      f"have moved {worst} otherwise (relative error {errors[worst]:.2g}, "
                      f"allowed {limits[worst]:.2g}, 1 if nothing arrived)")
            return replace(verdict, verdict="different", reason=reason)
        return verdict

    def _may_be_a_kink(self, network: networks.Network, verdict: Verdict, precision: str) -> bool:
        """Whether the loss is right and gradients are off in a network with kinks.

        The size of the error says nothing: one other maximum in CaffeNet's last pooling changed the
        gradients before it by 2 %, in two frameworks alike.
        """
        kinks = kinks_of(network.name)
        if verdict.verdict == "same" or not verdict.loss_error <= tolerance_of(precision).loss:
            return False
        allowed = tolerance_of(precision, 0 if precision == "fp32" else kinks).gradient
        return kinks > 0 and verdict.gradient_error > allowed

    def _compare(self, question: Question, parameters: int, losses: list[float], answers: Path,
                 task: Mapping[str, Any]) -> Verdict:
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
            name: distances.move_error(ours[f"parameter/{name}"], reference[f"parameter/{name}"],
                                       start[name], question.steps)
            for name in network.parameter_shapes}
        gradient_error, trajectory_error = _largest(gradients), _largest(moves)
        reasons = []
        if parameters != network.parameter_count:
            reasons.append(f"{parameters:,} parameters for {network.parameter_count:,}")
        if not loss_error <= tolerance_of(precision).loss:
            reasons.append(f"loss {losses[0]:.6g} for {wanted[0]:.6g}")
        if strays := [name for name, error in gradients.items()
                      if not error <= limits[name].gradient]:
            reasons.append(_name_gradients(network, gradients, strays, limits)
                           + _wrong_scale(question, ours, reference))
        elif strays := [name for name, error in moves.items()
                        if not error <= limits[name].trajectory]:
            worst = max(strays, key=lambda name: _nan_last(moves[name]))
            reasons.append(f"gradients agree, but after {question.steps} steps {worst} has moved "
                           f"otherwise (relative error {moves[worst]:.2g}, "
                           f"allowed {limits[worst].trajectory:.2g}): {OTHER_OPTIMISER}")
        return Verdict("different" if reasons else "same", "; ".join(reasons), parameters,
                       loss_error, gradient_error, trajectory_error)


def _mapped(question: Question, answers: Path) -> tuple[Tensors, Tensors, Tensors]:
    """Return a worker's answers, the reference's, and the weights that both started from."""
    ours, reference, start = map(arrays.mapped, (answers, question.reference, question.weights))
    return ours, reference, start


def _with_copies(verdict: Verdict, worker: Worker, question: Question) -> Verdict:
    """Add the comparison of the devices' copies to a verdict."""
    found = copies.compare(worker, question.devices, question.limit)
    verdict = replace(verdict, copies_error=found.error)
    if not found.fault:
        return verdict
    reason = "; ".join(filter(None, [verdict.reason, found.fault]))
    return replace(verdict, verdict="different", reason=reason)


def _is_unbounded(task: Mapping[str, Any]) -> bool:
    """Whether a task's strategy may move every tensor as it likes."""
    return math.isinf(LOSSY.get(task.get("strategy", ""), 0.0))


def _with_first_sum(verdict: Verdict, question: Question, answers: Path, precision: str) -> Verdict:
    """Refuse a verdict if the sum of the first step is not that of the exact one.

    Two means in the place of a block keep its sum. The tensor whose gradient cancels least in its
    sum is judged.
    """
    ours, reference, start = _mapped(question, answers)
    network = question.network
    sums = {name: distances.sums_of(lambda gradient: (gradient, np.square(gradient)),
                                    reference[f"gradient/{name}"])
            for name in network.parameter_shapes}
    name = max(sums, key=lambda name: distances.quotient(abs(sums[name][0]),
                                                         math.sqrt(sums[name][1])))
    (moved,) = distances.sums_of(lambda start, ours: (start - ours,), start[name],
                                 ours[f"parameter/{name}"])
    ratio = moved / (network.learning_rate * sums[name][0])
    if abs(ratio - 1) <= max(FIRST_SUM, tolerance_of(precision, kinks_of(network.name)).gradient):
        return verdict
    reason = f"the first step adds up to {ratio:.3g} times the right one's sum in {name}"
    if abs(ratio / question.devices - 1) < FIRST_SUM:
        reason += f": the sum over {question.devices} devices instead of the mean"
    return replace(verdict, verdict="different", reason=reason)


def _wrong_scale(question: Question, ours: Tensors, reference: Tensors) -> str:
    """Say if the gradients of n devices are n times too large: added up and not averaged."""
    if question.devices == 1:
        return ""
    name = f"gradient/{_largest_parameter(question.network)}"
    along, square = distances.sums_of(lambda ours, wanted: (ours * wanted, np.square(wanted)),
                                      ours[name], reference[name])
    n = question.devices
    if abs(distances.quotient(along, square) / n - 1) < 0.01:
        return f": they are {n} times too large, the sum over {n} devices instead of the mean"
    return ""


def _largest_parameter(network: networks.Network) -> str:
    return max(network.parameter_shapes, key=lambda name: math.prod(network.parameter_shapes[name]))


def _first_step(question: Question, answers: Path) -> str:
    """Name the optimizer by its first step: -lr g, or (1 + m) times that with Nesterov momentum."""
    network = question.network
    name = _largest_parameter(network)
    ours, reference, start = _mapped(question, answers)
    along, square = distances.sums_of(
        lambda start, ours, gradient: ((start - ours) * gradient, np.square(gradient)),
        start[name], ours[f"parameter/{name}"], reference[f"gradient/{name}"])
    ratio = distances.quotient(along, square) / network.learning_rate
    if abs(ratio - 1) < 0.01:
        return "its first step is right, so the momentum differs"
    if abs(ratio - 1 - network.momentum) < 0.01:
        return f"its first step is {ratio:.2f} times as long: Nesterov momentum"
    return (f"its first step is {ratio:.3g} times as long: "
            f"learning rate {ratio * network.learning_rate:.3g}, not {network.learning_rate}")


def _ask(worker: Worker, question: Question, task: Mapping[str, Any], steps: int,
         out: Path) -> tuple[int, list[float]]:
    """Let a worker train and write its answers to `out`; return its parameters and losses."""
    limit = question.limit
    built = worker.ask("build", limit, network=question.network.to_json(), batch=question.batch,
                       dropout=False, **task)
    worker.ask("load", limit, weights=str(question.weights))
    worker.ask("feed", limit, batches=str(question.batches), residence="device")
    return built["parameters"], worker.ask("check", limit, steps=steps, out=str(out))["losses"]


def _name_gradients(network: networks.Network, errors: dict[str, float], strays: list[str],
                    limits: dict[str, Tolerance]) -> str:
    """Name the last layer that differs: errors travel backwards from the loss."""
    last = strays[-1]
    op = network.layer(last.partition(".")[0]).op
    return (f"{len(strays)} of {len(errors)} gradients differ, from the loss backwards first "
            f"{last} ({op}, relative error {errors[last]:.2g}, "
            f"allowed {limits[last].gradient:.2g})")


def _limits(network: networks.Network, precision: str, lossy: float) -> dict[str, Tolerance]:
    """Return how far each tensor's gradient and move may be off.

    In fp32 the limits are those without kinks, because a new draw avoids a kink. But with very many
    pre-activations some lie at a kink on every draw; only batch norm's shifts move them away. A
    turned kink changes the gradients of the layers before it and not those after it; wrong
    arithmetic or another optimizer changes all. So without batch norm, the half of such a network's
    tensors that is far from the loss may be off by what kinks explain. `lossy` is a strategy's own
    limit of moves.
    """
    kinked = tolerance_of(precision, kinks_of(network.name))
    if precision != "fp32":
        same = replace(kinked, trajectory=max(kinked.trajectory, lossy))
        return dict.fromkeys(network.parameter_shapes, same)
    same = replace(tolerance_of("fp32"), trajectory=max(FP32_TRAJECTORY, lossy))
    limits = dict.fromkeys(network.parameter_shapes, same)
    if work.activation_bytes(network) > MANY_ACTIVATIONS and not network.has_batch_norm:
        far = list(limits)[:len(limits) // 2]
        limits.update(dict.fromkeys(far, replace(kinked, trajectory=math.inf)))
    return limits


def _misfit(network: networks.Network, ours: Mapping[str, np.ndarray]) -> str:
    """Name the first answer that is missing or has another shape, which NumPy might broadcast."""
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
