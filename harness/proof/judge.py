"""Judges sameness: what a worker's timed step does, against the NumPy float64 reference.

The worker makes the plays of `harness.proof.plays`. The judge compares its number of parameters,
its loss and what its parameters and running statistics moved. docs/method/sameness.md explains how.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import networks
from analysis.proof.tolerances import LATER, LATER_STEPS, LOSSY
from harness.data import arrays
from harness.proof import copies, distances, plays
from harness.proof.distances import Errors
from harness.proof.limits import Allowed, LimitsOf
from harness.proof.plays import Play, Plays
from harness.proof.questions import (
    CALIBRATED,
    MASKS,
    OF_REFERENCE,
    PLAIN,
    SMOOTH,
    Question,
    Questions,
    bias_gradient,
    head_of,
    samples_of,
)
from harness.workers.alive import LiveWorkers
from harness.workers.files import AnswerFolder
from harness.workers.worker import Failed, Unsupported, Worker

DRAWS = 3  # of weights and samples, before gradients that rounding could explain are different
# What has no rounding but that of stored weights and of a gradient's last sum must be right to 1 %.
EXACT = 0.01
SIGMAS = 6.0  # of what rounding of stored weights makes of a number
MASKED_SIGMAS = 4.0  # of what dropout masks make of a number
STORED_UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # unit roundoff where activations are stored so
# For the sum of a first step of a strategy that may move every tensor as it likes; found 0.002.
FIRST_SUM = 0.05
# Of the variance that dropout masks make, pooled over tensors; 0.4 in place of 0.5 is 0.67 of it.
MASKED = 0.1
# Where rounding of its weights is at most this share of a tensor's move, it cannot stand still,
# whatever its limits. A standstill is a fault of scale just below 1.
SURE_TO_MOVE, BARELY = 0.1, 0.99
# A gradient's strength is stated for the tensors that together hold this share of all parameters.
MOST_PARAMETERS = 0.95


@dataclass(frozen=True)
class Strength:
    """The smallest faults that would have been refused; 1 or more: not even a missing update.

    `rate` is an error of the learning rate, `gradient` one of the scale of a tensor's gradient (in
    the tensors that hold 95 % of the parameters). `frozen` is the share of the parameters in
    tensors that could stand still unseen.
    """

    rate: float = math.nan
    frozen: float = math.nan
    gradient: float = math.nan

    @property
    def is_blind(self) -> bool:
        """Whether a runner that trains nothing could have passed."""
        return self.rate >= 1 and self.frozen >= 1


@dataclass(frozen=True)
class Verdict:
    """The outcome for one framework and network. Errors are NaN if they were not measured."""

    verdict: str  # same, different, unsupported
    reason: str = ""
    parameters: int = 0
    loss_error: float = math.nan
    gradient_error: float = math.nan  # largest distance of a layer's gradient
    trajectory_error: float = math.nan  # largest error of a tensor's momentum
    copies_error: float = math.nan  # of several devices whose copies are not equal in every bit
    failure: str = ""  # the kind, where the worker failed instead of answering
    strength: Strength = Strength()

    @property
    def may_pass(self) -> bool:
        """Whether repeating the check may help: memory ran out, or the reference failed."""
        of_reference = self.reason.startswith(f"{self.failure}: {OF_REFERENCE}")
        return self.failure == "out_of_memory" or (bool(self.failure) and of_reference)


class Judge:
    """Proves workers; keeps the reference's answers in `folder`."""

    def __init__(self, folder: Path, samples: int, steps: int, seed: int, limit: float):
        self.live = LiveWorkers()
        self.questions = Questions(folder, seed, limit, self.live)
        self.limits = LimitsOf(self.questions)
        self.samples = samples
        self.steps = steps
        self.limit = limit

    def judge(self, worker: Worker, network: networks.Network, task: Mapping[str, Any],
              batch: int = 0, between: int = 0) -> Verdict:
        """Let `worker` build `network` under `task` at `batch` (0: twice the samples); prove it.

        With `between`, it is proved again after as many further steps.
        """
        batch = batch or 2 * self.samples
        try:
            built = worker.ask("build", self.limit, network=network.to_json(), batch=batch,
                               dropout=True, **task)
            verdict = self.prove(worker, network, task, batch, built["parameters"])
            if between and verdict.verdict == "same":
                worker.ask("run", self.limit, steps=between)
                verdict = self.prove(worker, network, task, batch, built["parameters"])
        except Unsupported as refusal:
            return Verdict("unsupported", str(refusal))
        except Failed as failure:
            return Verdict("different", str(failure), failure=failure.kind)
        return verdict

    def prepare(self, network: networks.Network, batch: int, devices: int,
                precision: str) -> None:
        """Ask the reference for all that a first draw of `prove` needs. Raises Failed."""
        question = self._question(network, batch, devices, 0)
        for kind in question.kinds:
            self.questions.answer(question, kind)
            self.limits.of(question, kind, precision)
        if network.has_dropout:
            self.questions.masks(question)
            self.questions.masked_head(question)
        if head_of(network):
            self.questions.answer(question, CALIBRATED)

    def prove(self, worker: Worker, network: networks.Network, task: Mapping[str, Any],
              batch: int, parameters: int, residence: str = "device") -> Verdict:
        """Prove a worker that has built `network` at `batch`. Raises Failed and Unsupported.

        Gradients may miss their limits because rounding turned ReLUs or maxima. New weights and
        samples show it, because a fault shows on every draw.
        """
        for draw in range(DRAWS):
            question = self._question(network, batch, task["devices"], draw)
            proof = Proof(self, worker, question, task, batch, residence)
            verdict = proof.verdict(parameters)
            if verdict.verdict == "same" or proof.exact_faults:
                return verdict
        return verdict

    def _question(self, network: networks.Network, batch: int, devices: int,
                  draw: int) -> Question:
        return self.questions.question(network, samples_of(batch, self.samples), devices, draw)


class Proof:
    """One proof of one worker: its faults, its largest errors, and its strength."""

    def __init__(self, judge: Judge, worker: Worker, question: Question, task: Mapping[str, Any],
                 batch: int, residence: str):
        self.judge = judge
        self.worker = worker
        self.question = question
        self.network = question.network
        self.parts = parts_of(question.network)
        self.task = task
        self.batch = batch
        self.residence = residence
        self.strategy = str(task.get("strategy", ""))
        self.precision = str(task["precision"])
        if self.strategy == "bf16_compress":
            self.precision = "bf16"
        # Those that no rounding explains, and those that another draw may clear.
        self.exact_faults: list[str] = []
        self.faults: list[str] = []
        self.loss_error = self.gradient_error = self.momentum_error = math.nan
        self.rate = math.inf  # smallest error of the learning rate that the head shows
        self.seen: dict[str, list[float]] = {}  # a tensor's limits of scale, one of each kind

    def verdict(self, parameters: int) -> Verdict:
        """Let the worker make its plays, and compare them."""
        network, question = self.network, self.question
        if parameters != network.parameter_count:
            self.exact_faults.append(f"{parameters:,} parameters for {network.parameter_count:,}")
        judge, apart = self.judge, copies.Comparison()
        try:
            with plays.played(self.worker, question, self.residence, judge.steps,
                              judge.limit) as found:
                self._compare(found)
        except plays.Misfit as misfit:
            self.exact_faults.append(misfit.reason)
            return Verdict("different", "; ".join(self.exact_faults), parameters)
        if question.devices > 1:
            apart = copies.compare(self.worker, question.devices, judge.limit)
            self.exact_faults += [apart.fault] if apart.fault else []
        if self.strategy in LATER and not self.exact_faults and not self.faults:
            self._later_moves()
        reasons = [*self.exact_faults, *self.faults]
        return Verdict("different" if reasons else "same", "; ".join(reasons), parameters,
                       self.loss_error, self.gradient_error, self.momentum_error, apart.error,
                       strength=self._strength())

    def _compare(self, found: Plays) -> None:
        self._loss(found.plain)
        self._calibrated(found.calibrated)
        if math.isinf(LOSSY.get(self.strategy, 0.0)):
            self._first_sum(found.plain)
        else:
            self._gradients(PLAIN, found.plain)
            if found.smooth:
                self._gradients(SMOOTH, found.smooth)
            self._momentum(found)
        self._running_statistics(found.plain)
        if found.again:
            self._masks(found)

    def _loss(self, found: Play) -> None:
        """Compare the first loss, with dropout within what random masks make of it."""
        wanted, _ = self.judge.questions.answer(self.question, PLAIN)
        allowed = self._limits(PLAIN).loss
        if self.network.has_dropout:
            mean, deviation = self.judge.questions.masks(self.question)["loss"]
            wanted *= mean
            allowed += MASKED_SIGMAS * deviation * self._averaged()
        self.loss_error = abs(found.losses[0] - wanted) / abs(wanted)
        if not self.loss_error <= allowed:
            self.faults.append(f"loss {found.losses[0]:.6g} for {wanted:.6g}")

    def _calibrated(self, found: Play) -> None:
        """Compare a step whose logits are zero: the head's bias and all that must not move."""
        head = head_of(self.network)
        if not head:
            return
        start = arrays.mapped(self.question.file(CALIBRATED))
        chance = math.log(self.network.classes)
        if not abs(found.losses[0] / chance - 1) <= EXACT:
            self.exact_faults.append(f"loss {found.losses[0]:.6g} for {chance:.6g} where all "
                                     "logits are zero")
        moved = {name: largest for name in self.network.parameter_shapes
                 if name.partition(".")[0] != head.name and
                 (largest := _largest_change(found.parameters[0][name], start[name])) != 0}
        if moved:
            worst = max(moved, key=lambda name: _nan_last(moved[name]))
            self.exact_faults.append(
                f"{len(moved)} tensors moved although their gradient is zero, most of all {worst} "
                f"by {moved[worst]:.2g} of its largest value: weight decay, or updates of another "
                "step")
        if math.isinf(LOSSY.get(self.strategy, 0.0)):
            return
        bias, weight = (f"{head.name}.{name}" for name in ("bias", "weight"))
        gradients = {bias: bias_gradient(self.question)}
        allowed = {bias: EXACT + self._summed(bias)}
        _, answer = self.judge.questions.answer(self.question, CALIBRATED)
        gradients[weight] = answer[f"gradient/{weight}"]
        allowed[weight] = self._limits(PLAIN).tensors[weight].coefficient
        if self.network.has_dropout:
            mean, deviation = self.judge.questions.masked_head(self.question)
            gradients[weight] = mean * gradients[weight]
            allowed[weight] += MASKED_SIGMAS * deviation * self._averaged() / mean
        self.rate = min(allowed.values())
        for name, gradient in gradients.items():
            error = distances.step_errors(start[name], found.parameters[0][name], gradient,
                                          self.network.learning_rate)
            apart = abs(error.coefficient) if name == weight else error.distance
            if not apart <= allowed[name]:
                self.exact_faults.append(self._rate_words(name, error, allowed[name]))
                break

    def _summed(self, name: str) -> float:
        """Return what sums in bf16 or fp16 may be off, as that of a bias's gradient over all rows.

        n rounded additions are off by a multiple of sqrt(n) u (Higham and Mary 2019, A new approach
        to probabilistic rounding error analysis). TensorFlow's sum of 64 rows was 4 % off, JAX's
        sum of an embedding's rows 3 %.
        """
        layer, parameter = name.split(".")[:2]
        if self.precision not in STORED_UNITS:
            return 0.0
        shape = self.network.layer(layer).output_shape
        if self.network.layer(layer).op == "embedding":
            rows = self.batch
        elif parameter in ("bias", "scale", "shift"):
            rows = self.batch * math.prod(shape[1:] if len(shape) == 3 else shape[:-1])
        else:
            return 0.0
        return 2 * STORED_UNITS[self.precision] * math.sqrt(rows)

    def _rate_words(self, name: str, error: Errors, allowed: float) -> str:
        """Name the optimiser by how far one of the head's tensors moved."""
        times, network, devices = 1 + error.coefficient, self.network, self.question.devices
        digits = 3 if abs(times - 1) > EXACT else 5
        found = (f"{name} moved {times:.{digits}g} times as far as it must "
                 f"(allowed {_range(allowed)})")
        if abs(times) < EXACT:
            return f"{found}: nothing was trained"
        if devices > 1 and abs(times / devices - 1) <= EXACT:
            return f"{found}: the sum over {devices} devices instead of the mean"
        if abs(times - 1 - network.momentum) <= EXACT:
            return f"{found}: Nesterov momentum"
        if abs(error.coefficient) <= allowed:
            return f"{found}, but not in its direction: the batch or the loss is another one"
        if not name.endswith(".bias") and abs(times - 1) > EXACT:
            # The bias has shown the learning rate.
            return f"{found}: what its layer reads is not what the network gives"
        return (f"{found}: learning rate {times * network.learning_rate:.{digits}g}, not "
                f"{network.learning_rate}, or another loss")

    def _gradients(self, kind: str, found: Play) -> None:
        """Compare the gradients that the first step shows with the reference's."""
        _, answer = self.judge.questions.answer(self.question, kind)
        start, rate = arrays.mapped(self.question.file(kind)), self.network.learning_rate
        errors = {part: distances.step_errors(start[name][rows], found.parameters[0][name][rows],
                                              answer[f"gradient/{name}"][rows], rate)
                  for part, name, rows in self.parts}
        allowed = {name: self._allowed(kind, name, error) for name, error in errors.items()}
        still = []
        for name, limit in allowed.items():
            # What moves by more than its weights' rounding cannot stand still.
            moves = errors[name].size > 0 and errors[name].rounded_distance < SURE_TO_MOVE
            still += [name] if moves and errors[name].norm == -1 else []
            scale = min(limit.coefficient, limit.norm)
            self.seen.setdefault(name, []).append(min(scale, BARELY) if moves else scale)
        if still:
            self.exact_faults.append(f"{len(still)} of {len(errors)} tensors did not move, from "
                                     f"the loss backwards first {still[-1]}")
        dropout = self.network.has_dropout
        if dropout:
            errors = {name: self._from_masked_mean(name, error) for name, error in errors.items()}
        else:
            self.gradient_error = max(self._layer_error(errors),
                                      np.nan_to_num(self.gradient_error))
        strays = {name: words for name, error in errors.items()
                  if (words := _beyond(error, allowed[name], distance=not dropout))}
        if strays:
            last = list(strays)[-1]
            op = self.network.layer(last.partition(".")[0]).op
            self.faults.append(f"{len(strays)} of {len(errors)} gradients differ, from the loss "
                               f"backwards first {last} ({op}, {strays[last]})")

    def _allowed(self, kind: str, name: str, error: Errors) -> Allowed:
        """Return a tensor's limits: of its rounding, of stored weights, and of dropout masks."""
        limit, summed = self._limits(kind).tensors[name], self._summed(name)
        stored, whole = SIGMAS * error.rounded_coefficient, error.rounded_distance
        coefficient = limit.coefficient + stored + whole**2 + summed
        norm = limit.norm + stored + whole**2 + summed
        if self.network.has_dropout:
            mean, deviation, _, of_norm, _, _ = self._masks_of(name)
            coefficient += MASKED_SIGMAS * deviation * self._averaged() / max(mean, 0.1)
            norm += MASKED_SIGMAS * of_norm * self._averaged()
        return Allowed(coefficient, norm, math.hypot(limit.distance, 2 * whole, summed))

    def _from_masked_mean(self, name: str, error: Errors) -> Errors:
        """Turn errors from the gradient without dropout into those from the mean over masks."""
        mean, _, norm, _, variance, _ = self._masks_of(name)
        expected = max(norm - variance, 0) + variance / self._repeats()
        if not mean or not expected:
            return error
        return replace(error, coefficient=(1 + error.coefficient) / mean - 1,
                       norm=(1 + error.norm)**2 / expected - 1)

    def _masks_of(self, name: str) -> list[float]:
        return list(self.judge.questions.masks(self.question)["tensors"][name])

    def _repeats(self) -> int:
        """How often the timed batch repeats its samples, each time with other masks."""
        return self.batch // self.question.samples

    def _averaged(self) -> float:
        """The standard deviation of a mean over this batch's masks less the reference's mean."""
        return math.sqrt(1 / self._repeats() + 1 / MASKS)

    def _layer_error(self, errors: Mapping[str, Errors]) -> float:
        """Return the largest distance of a whole layer's gradient, as a share of its norm."""
        worst = 0.0
        for layer in self.network.layers:
            ours = [error for part, error in errors.items()
                    if part.partition(".")[0] == layer.name]
            error = distances.quotient(math.hypot(*(each.beyond_rounding for each in ours)),
                                       math.hypot(*(each.size for each in ours)))
            worst = max(worst, error, key=_nan_last)
        return worst

    def _momentum(self, found: Plays) -> None:
        """Compare what momentum added to each later step with the move before it."""
        momentum, dropout = self.network.momentum, self.network.has_dropout
        base, kind = (found.calibrated, CALIBRATED) if dropout else (found.plain, PLAIN)
        if not momentum or not found.own:
            return
        head = head_of(self.network)
        # With dropout other masks change the gradients of all but the head's bias.
        names = list(self.network.parameter_shapes)
        if dropout:
            names = [f"{head.name}.bias"] if head else []
        states = [arrays.mapped(self.question.file(kind)), *base.parameters]
        strays: dict[str, Errors] = {}
        worst = 0.0
        for step, own in enumerate(found.own, 1):
            for name in names:
                before, between, after = (states[step + shift][name] for shift in (-1, 0, 1))
                error = distances.momentum_errors(before, between, own.parameters[0][name], after,
                                                  momentum)
                # Rounded moves are longer on the average, so a share of them is less.
                allowed = (EXACT + SIGMAS * error.rounded_coefficient
                           + error.rounded_distance**2)
                if not abs(error.coefficient) <= allowed:
                    strays.setdefault(name, error)
                if allowed < 2 * EXACT or name in strays:
                    worst = max(worst, abs(error.coefficient), key=_nan_last)
        self.momentum_error = worst
        if strays:
            name = max(strays, key=lambda name: _nan_last(abs(strays[name].coefficient)))
            self.exact_faults.append(
                f"{len(strays)} tensors have another momentum: "
                f"{(1 + strays[name].coefficient) * momentum:.3g} in {name}, not {momentum}")

    def _running_statistics(self, found: Play) -> None:
        """Compare batch norm's running statistics after the first step."""
        if not self.network.has_batch_norm or not found.statistics[0]:
            return
        _, answer = self.judge.questions.answer(self.question, PLAIN)
        limits = self._limits(PLAIN).tensors
        strays = {}
        for layer in self.network.layers:
            for name in ("mean", "variance") if layer.op == "batch_norm" else ():
                full = f"{layer.name}.{name}"
                ours = found.statistics[0].get(full)
                if ours is None or not np.isfinite(ours).all():
                    strays[full] = "no running statistic was answered"
                    continue
                count = self.batch * math.prod(layer.output_shape[1:])
                error = _statistic_error(
                    ours.astype(np.float64), answer[f"statistic/{full}"],
                    float(name == "variance"), layer.attributes["running"], count)
                if words := _beyond(error, limits[full], distance=True):
                    strays[full] = words
        if strays:
            first = next(iter(strays))
            self.faults.append(f"{len(strays)} running statistics differ, first {first} "
                               f"({strays[first]})")

    def _masks(self, found: Plays) -> None:
        """Compare the variance that dropout makes: half the squared distance of two steps."""
        assert found.again
        rate = self.network.learning_rate
        shares, deviations = [], []
        _, answer = self.judge.questions.answer(self.question, PLAIN)
        for part, name, rows in self.parts:
            *_, variance, deviation = self._masks_of(part)
            if not variance > EXACT:
                continue
            (apart, rounding), (size,) = (distances.sums_of(
                lambda one, other: (np.square((one - other) / rate),
                                    np.square(2.0**-24 * one / rate)),
                found.plain.parameters[0][name][rows], found.again.parameters[0][name][rows]),
                distances.sums_of(lambda wanted: (np.square(wanted),),
                                  answer[f"gradient/{name}"][rows]))
            wanted = variance / self._repeats() * size
            if rounding >= EXACT * wanted:
                continue
            if not apart:
                self.exact_faults.append(f"dropout's masks change nothing in {part}: none, or the "
                                         "same in each step")
                return
            shares.append(apart / 2 / wanted)
            deviations.append(deviation / variance)
        if not shares:
            return
        share = float(np.mean(shares))
        allowed = MASKED + MASKED_SIGMAS * float(np.mean(deviations))
        if not abs(share - 1) <= allowed:
            self.faults.append(f"dropout's masks make {share:.2g} times the variance that they "
                               f"must (allowed {1 - allowed:.2g} to {1 + allowed:.2g}): another "
                               "rate, or the same masks in each step")

    def _first_sum(self, found: Play) -> None:
        """Compare the sum of a first step whose strategy keeps only sums.

        Two means in the place of a block keep its sum. The tensor whose gradient cancels least in
        its sum is compared; all must have moved.
        """
        _, answer = self.judge.questions.answer(self.question, PLAIN)
        start, network = arrays.mapped(self.question.file(PLAIN)), self.network
        sums = {name: distances.sums_of(lambda gradient: (gradient, np.square(gradient)),
                                        answer[f"gradient/{name}"])
                for name in network.parameter_shapes}
        name = max(sums, key=lambda name: distances.quotient(abs(sums[name][0]),
                                                             math.sqrt(sums[name][1])))
        moved = {name: distances.sums_of(lambda start, ours: (start - ours, np.abs(start - ours)),
                                         start[name], found.parameters[0][name]) for name in sums}
        ratio = moved[name][0] / (network.learning_rate * sums[name][0])
        limit = max(FIRST_SUM, self._limit_of(name).coefficient)
        # The moves of the head's bias add up to zero.
        still = [name for name in sums if sums[name][1] and moved[name][1] == 0]
        if still:
            self.faults.append(f"{len(still)} tensors did not move, first {still[0]}")
        self.seen = {part: [limit] for part, whole, _ in self.parts if whole not in still}
        if not abs(ratio - 1) <= limit:
            reason = f"the first step adds up to {ratio:.3g} times the right one's sum in {name}"
            if abs(ratio / self.question.devices - 1) < FIRST_SUM:
                reason += f": the sum over {self.question.devices} devices instead of the mean"
            self.exact_faults.append(reason)

    def _later_moves(self) -> None:
        """Refuse if the steps after a strategy's whole ones moved too little."""
        question, whole, allowed = self.question, *LATER[self.strategy]
        with AnswerFolder(question.folder) as folder:
            trainer = plays.Trainer(self.worker, question, self.residence, self.judge.limit, folder)
            ours = trainer.train(question.file(PLAIN), 0, LATER_STEPS).parameters[-1]
            early, late = (self.judge.questions.answer(question, PLAIN, steps)[1]
                           for steps in (whole, LATER_STEPS))
            errors = distances.later_errors(self.network, whole, (
                ours, early, late, arrays.mapped(question.file(PLAIN))))
        strays = {name: error for name, error in errors.items()
                  if not error <= max(allowed, self._limit_of(name).distance)}
        if strays:
            worst = max(strays, key=lambda name: _nan_last(strays[name]))
            self.exact_faults.append(
                f"steps {whole + 1} to {LATER_STEPS}, whose gradients are not sent whole, have "
                f"moved {worst} otherwise (relative error {strays[worst]:.2g}, allowed "
                f"{allowed:.2g}, 1 if nothing arrived)")

    def _limits(self, kind: str) -> Any:
        return self.judge.limits.of(self.question, kind, self.precision)

    def _limit_of(self, tensor: str) -> Allowed:
        """Return the widest limits of a tensor's parts."""
        limits = self._limits(PLAIN).tensors
        ours = [limits[part] for part, name, _ in self.parts if name == tensor]
        return Allowed(*(max(getattr(each, key) for each in ours)
                         for key in ("coefficient", "norm", "distance")))

    def _strength(self) -> Strength:
        shapes = self.network.parameter_shapes
        sizes = {part: math.prod(shapes[name][1:]) * (rows.stop - rows.start)
                 for part, name, rows in self.parts}
        weakest = {name: min(self.seen.get(name, [math.inf])) for name in sizes}
        total = sum(sizes.values())
        frozen = sum(size for name, size in sizes.items() if weakest[name] >= 1) / total
        reached, gradient = 0.0, math.inf
        for name in sorted(weakest, key=lambda name: weakest[name]):
            reached, gradient = reached + sizes[name], weakest[name]
            if reached >= MOST_PARAMETERS * total:
                break
        return Strength(min(self.rate, gradient), frozen, gradient)


def parts_of(network: networks.Network) -> list[tuple[str, str, slice]]:
    """List what is compared by itself: tensors, and the gates of LSTMs.

    An entry is its name, its tensor's and its rows: ("lstm1.bias.f", "lstm1.bias", 256 to 512).
    """
    found = []
    for layer in network.layers:
        gates = "ifgo" if layer.op == "lstm" else ""
        for parameter, shape in layer.parameters.items():
            name, rows = f"{layer.name}.{parameter}", shape[0] // max(1, len(gates))
            found += [(f"{name}.{gate}", name, slice(number * rows, (number + 1) * rows))
                      for number, gate in enumerate(gates)] or [(name, name, slice(0, rows))]
    return found


def _beyond(error: Errors, allowed: Allowed, distance: bool) -> str:
    """Return in words how a tensor's gradient misses its limits, or ""."""
    times = 1 + error.coefficient
    if math.isnan(error.distance):
        return "not a number"
    if not abs(error.coefficient) <= allowed.coefficient:
        if times == 0 and error.norm == -1:
            return "it did not move"
        return f"{times:.4g} times the right one, allowed {_range(allowed.coefficient)}"
    if not abs(error.norm) <= allowed.norm:
        return (f"its norm is {1 + error.norm:.3g} times the right one, "
                f"allowed {_range(allowed.norm)}")
    if distance and not error.distance <= allowed.distance:
        return f"relative error {error.distance:.2g}, allowed {allowed.distance:.2g}"
    return ""


def _range(limit: float) -> str:
    return f"{1 - limit:.5g} to {1 + limit:.5g}"


def _statistic_error(ours: np.ndarray, right: np.ndarray, start: float, running: float,
                     count: int) -> Errors:
    """Compare the moves of a running statistic from `start`: 0 for a mean, 1 for a variance.

    Frameworks keep the variance with or without Bessel's correction for `count` values.
    """
    found = [distances.errors_of(ours - start, right - start)]
    if start and count > 1:
        biased = start * running + (ours - start * running) * (count - 1) / count
        found.append(distances.errors_of(biased - start, right - start))
    return min(found, key=lambda error: _nan_last(error.distance))


def _largest_change(after: np.ndarray, before: np.ndarray) -> float:
    """Return the largest change of a tensor, as a share of its largest value; NaN kept."""
    if np.array_equal(after, before):
        return 0.0
    change = np.abs(after - before).max()
    return float(change / (np.abs(before).max() or 1.0))


def _nan_last(error: float) -> float:
    return math.inf if math.isnan(error) else error
