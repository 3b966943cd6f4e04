"""The judge of sameness: a worker's answers against the NumPy float64 reference, from the same weights and the same batches.

Compared are the built parameters, the loss, every gradient (relative L2 error a tensor) and where several optimiser steps lead.
The tolerances follow from the precision (`analysis.tolerances`); the argument is in docs/method.md.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import networks
from analysis.tolerances import kinks_of, tolerance_of
from harness import arrays
from harness.worker import Failed, Unsupported, Worker

UNIT_ROUNDOFF_FP32 = 2.0**-24


@dataclass(frozen=True)
class Question:
    """What a check asks: the network, and the files and settings that every runner and the reference share."""

    network: networks.Network
    batch: int
    steps: int
    weights: Path
    batches: Path
    limit: float


@dataclass(frozen=True)
class Verdict:
    """The outcome for one framework and network. Errors are NaN where the worker did not get so far."""

    verdict: str  # same, different, unsupported
    reason: str = ""
    parameters: int = 0
    loss_error: float = float("nan")
    gradient_error: float = float("nan")
    trajectory_error: float = float("nan")


class Judge:
    """Answers of the reference, computed once a network and kept as files in `folder`."""

    def __init__(self, folder: Path, batch: int, steps: int, seed: int, limit: float):
        self.folder = folder
        self.batch = batch
        self.steps = steps
        self.seed = seed
        self.limit = limit
        self.losses: dict[str, list[float]] = {}

    def question(self, network: networks.Network) -> Question:
        """Write the weights and batches of a check once and return what to ask."""
        weights = self.folder / f"check-{network.name}-weights.npz"
        batches = self.folder / f"check-{network.name}-batches.npz"
        if not batches.exists():
            arrays.save_weights(weights, arrays.draw_weights(network, self.seed))
            arrays.save_batches(batches, *arrays.synthetic_batches(network, self.batch, 2, self.seed))
        return Question(network, self.batch, self.steps, weights, batches, self.limit)

    def judge(self, worker: Worker, network: networks.Network, task: Mapping[str, Any]) -> Verdict:
        """Ask `worker` for its check of `network` under `task` (device, threads, precision, tuning) and compare."""
        question = self.question(network)
        answers = self.folder / f"answers-{worker.token}.npz"
        try:
            parameters, losses = _ask(worker, question, task, question.steps, answers)
            self._reference(question)
            verdict = self._compare(question, parameters, losses, answers, str(task["precision"]))
            if verdict.verdict == "different" and "after" in verdict.reason:
                _, _ = _ask(worker, question, task, 1, answers)
                verdict = Verdict(**{**verdict.__dict__, "reason": f"{verdict.reason}; {self._first_step(question, answers)}"})
            return verdict
        except Unsupported as refusal:
            return Verdict("unsupported", str(refusal))
        except Failed as failure:
            return Verdict("different", str(failure))
        finally:
            answers.unlink(missing_ok=True)

    def _reference(self, question: Question) -> None:
        name = question.network.name
        if name in self.losses:
            return
        with Worker(sys.executable, "runners.reference_runner", self.folder / "reference.log") as worker:
            task = {"device": "cpu", "threads": 1, "precision": "fp32", "tuning": "stock"}
            _, self.losses[name] = _ask(worker, question, task, question.steps, self._reference_file(name))

    def _reference_file(self, name: str) -> Path:
        return self.folder / f"reference-{name}.npz"

    def _compare(self, question: Question, parameters: int, losses: list[float], answers: Path, precision: str) -> Verdict:
        network = question.network
        tolerance = tolerance_of(precision, kinks_of(network.name))
        wanted = self.losses[network.name]
        loss_error = abs(losses[0] - wanted[0]) / abs(wanted[0])
        with np.load(answers) as ours, np.load(self._reference_file(network.name)) as reference, \
                np.load(question.weights) as start:
            gradients = {
                name: _relative_error(ours[f"gradient/{name}"], reference[f"gradient/{name}"])
                for name in network.parameter_shapes
            }
            displacements = {
                name: _displacement_error(
                    ours[f"parameter/{name}"], reference[f"parameter/{name}"], start[name], question.steps
                )
                for name in network.parameter_shapes
            }
        gradient_error, trajectory_error = _largest(gradients), _largest(displacements)
        reasons = []
        if parameters != network.parameter_count:
            reasons.append(f"{parameters:,} parameters for {network.parameter_count:,}")
        if not loss_error <= tolerance.loss:
            reasons.append(f"loss {losses[0]:.6g} for {wanted[0]:.6g}")
        if not gradient_error <= tolerance.gradient:
            reasons.append(_name_gradients(network, gradients, tolerance.gradient))
        elif not trajectory_error <= tolerance.trajectory:
            worst = max(displacements, key=lambda name: _nan_last(displacements[name]))
            reasons.append(f"gradients agree, but after {question.steps} steps {worst} has moved otherwise "
                           f"(relative error {displacements[worst]:.2g}): the optimiser differs")
        return Verdict("different" if reasons else "same", "; ".join(reasons), parameters, loss_error, gradient_error,
                       trajectory_error)

    def _first_step(self, question: Question, answers: Path) -> str:
        """Name the optimiser by its first step: -lr g for plain momentum, (1 + m) times that for Nesterov's."""
        network = question.network
        name = max(network.parameter_shapes, key=lambda name: int(np.prod(network.parameter_shapes[name])))
        with np.load(answers) as ours, np.load(self._reference_file(network.name)) as reference, \
                np.load(question.weights) as start:
            gradient = reference[f"gradient/{name}"].astype(np.float64).ravel()
            step = (start[name].astype(np.float64) - ours[f"parameter/{name}"]).ravel()
        ratio = float(step @ gradient / (gradient @ gradient)) / network.learning_rate
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


def _name_gradients(network: networks.Network, errors: dict[str, float], tolerance: float) -> str:
    """Say which gradients stray; the last layer among them is where the fault begins, for errors travel from the loss backwards."""
    strays = [name for name, error in errors.items() if not error <= tolerance]
    last = strays[-1]
    return (f"{len(strays)} of {len(errors)} gradients differ, from the loss backwards first {last} "
            f"({network.layer(last.partition('.')[0]).op}, relative error {errors[last]:.2g}, allowed {tolerance:.2g})")


def _relative_error(ours: np.ndarray, reference: np.ndarray) -> float:
    """||ours - reference|| / ||reference|| in float64; infinite where only the reference is zero, NaN kept."""
    wanted = reference.astype(np.float64).ravel()
    difference = float(np.linalg.norm(ours.astype(np.float64).ravel() - wanted))
    norm = float(np.linalg.norm(wanted))
    return difference / norm if norm else (0.0 if difference == 0 else float("inf"))


def _displacement_error(ours: np.ndarray, reference: np.ndarray, start: np.ndarray, steps: int) -> float:
    """Relative error of how far the parameters have moved, less what rounding the stored weights at each step explains."""
    begin = start.astype(np.float64)
    wanted = reference.astype(np.float64) - begin
    difference = float(np.linalg.norm(ours.astype(np.float64) - begin - wanted))
    rounding = steps * UNIT_ROUNDOFF_FP32 * float(np.linalg.norm(begin))
    norm = float(np.linalg.norm(wanted))
    if np.isnan(difference):
        return difference
    excess = max(0.0, difference - rounding)
    return excess / norm if norm else (0.0 if excess == 0 else float("inf"))


def _largest(errors: dict[str, float]) -> float:
    return max(errors.values(), key=_nan_last)


def _nan_last(error: float) -> float:
    return float("inf") if np.isnan(error) else error
