"""One process of a trial that trains until a test accuracy: one seed, epoch by epoch.

All frameworks begin with the weights of the seed and train on its mini-batches, in its order. The
last two steps of an epoch are untimed: the witness looks at them. Those before are one window.
Training time is the window's time a step times all steps; testing and feeding do not count.

The witness compares with the reference's gradient where the reference tests the weights. Else,
once the target is reached, the worker makes the last step of each epoch again, from the weights
that it had then and without momentum.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import runners.arrays
from harness.accuracy import witness
from harness.accuracy.epochs import Epochs, epochs
from harness.accuracy.evaluation import Examiner, examiner, tests_itself
from harness.accuracy.witness import Recipe
from harness.campaign.process import Process
from harness.data import arrays, divided
from harness.plan.parts import Until
from harness.workers.worker import Failed, Unsupported, Worker

WITNESSED = 2  # steps of an epoch
# The learning rate of a step that is made again, if the suite schedules rates: a large rate keeps
# the share of rounding small.
REPLAY_RATE = 1.0


@dataclass(frozen=True)
class Moment:
    """The last two steps of an epoch: weights before, between and after, and the last batch."""

    epoch: int
    weights: tuple[Path, Path, Path]
    batch: Path
    recipe: Recipe


class AccuracyProcess(Process):
    """A process that trains until the suite's target, or fails to."""

    @property
    def seed(self) -> int:
        """The seed of this process: the same for every framework."""
        return self.session.suite.seed + self.number

    @property
    def until(self) -> Until:
        assert self.session.suite.until
        return self.session.suite.until

    @property
    def weights_file(self) -> Path:
        """Where the campaign keeps what this process has trained, if the suite says so."""
        folder = self.session.logs.parent / "weights"
        return folder / f"{self.trial.trial}-{self.number}.npz"

    def measure(self) -> Any:
        """Train and test; the accuracy of each epoch is a row."""
        outcome = super().measure()
        if outcome.row["status"] != "ok":
            outcome.row.pop("window_steps", None)
        return outcome

    def _feed(self, worker: Worker) -> None:
        """Load the seed's weights; batches come epoch by epoch. Compile the framework's test."""
        limit = self.session.suite.limits.build
        # An attempt that was killed may have left it.
        self.weights_file.unlink(missing_ok=True)
        self.parts = divided.divide(self.trial.data, self.network)
        self.tests = self.session.inputs.tests(self.parts)
        self.weights = self.session.inputs.weights(self.network, self.seed)
        worker.ask("load", limit, weights=str(self.weights))
        if tests_itself(self.network, self.trial.precision):
            worker.ask("evaluate", limit, inputs=str(self.tests), out=os.devnull)

    def _time(self, worker: Worker) -> None:
        parts, trial, limits = self.parts, self.trial, self.session.suite.limits
        steps = parts.count // trial.global_batch
        if steps <= WITNESSED:
            raise Unsupported(f"an epoch of {parts.count:,} samples has {steps} mini-batches "
                              f"of {trial.global_batch:,}; until needs {WITNESSED + 1}: "
                              "ask for a smaller batch")
        self.outcome.row.update(window_steps=steps - WITNESSED)
        with examiner(parts, trial.precision, self.tests, limits.check,
                      self.session.live) as own, \
                epochs(parts, trial.global_batch, self.seed,
                       self.until.augmentation != "none", own.folder.folder,
                       prefetch=trial.device_kind != "cpu") as fed:
            self._train(worker, own, fed)
        if self.until.scheduled:
            self._schedule(worker, self.network.learning_rate, 0.0)
        self._prove(worker, after=True)

    def _train(self, worker: Worker, own: Examiner, fed: Epochs) -> None:
        """Train epoch by epoch. Raises Failed at a wrong step, and if the target is not reached."""
        until, rows, moments = self.until, self.outcome.accuracy, list[Moment]()
        itself = tests_itself(self.network, self.trial.precision)
        for epoch in range(1, until.at_most_epochs + 1):
            self._tell(f"epoch {epoch}")
            recipe = Recipe(until.rate(epoch, self.network.learning_rate), self.network.momentum,
                            until.weight_decay, running=own.running)
            if until.scheduled:
                self._schedule(worker, recipe.rate, recipe.decay)
            worker.ask("feed", self.session.suite.limits.build, batches=str(fed.file(epoch)),
                       residence=self.session.residence(self.trial))
            self._window(worker, int(self.outcome.row["window_steps"]), "timing")
            before = own.snapshot(worker)
            between, weights = (self._step_and_snapshot(worker, own) for _ in range(WITNESSED))
            moments.append(Moment(epoch, (before, between, weights), fed.last(epoch), recipe))
            seen = witness.Seen(math.nan, "", math.nan)
            if not itself:
                seen = self._refuse(own.look(moments[-1].weights, fed.last(epoch), recipe), epoch)
            reached, outputs = own.test(worker, weights)
            done = reached.accuracy >= until.target
            error = math.nan
            # Epochs 1, 2, 4, 8, ... and the one that decides.
            if itself and (done or not epoch & (epoch - 1)):
                error = own.confirm(outputs, weights, [self.seed, epoch], done)
            rows.append({**self._position(epoch), "test_accuracy": reached.accuracy,
                         "test_loss": reached.loss, "witness_error": seen.error,
                         "witness_share": seen.share, "learning_rate": recipe.rate,
                         "evaluation_error": error})
            if done:
                if until.keep_weights:
                    # Copies, because the snapshot goes with its folder.
                    self.trained = {name: np.array(array, np.float32)
                                    for name, array in arrays.mapped(weights).items()}
                self._replay(worker, own, moments)
                return
        best = max(row["test_accuracy"] for row in rows)
        raise Failed("target", f"a test accuracy of {until.target:g} was not reached in "
                               f"{until.at_most_epochs} epochs: the best was {best:.3g}")

    def _position(self, epoch: int) -> dict[str, Any]:
        """Return the columns of an epoch that say which it is, and what it took until then."""
        window, rows = self.outcome.windows[-1], self.outcome.accuracy
        steps = window["steps"] + WITNESSED
        before = rows[-1] if rows else {"step": 0, "seconds": 0.0}
        return {"seed": self.seed, "epoch": epoch, "step": before["step"] + steps,
                "seconds": before["seconds"] + window["step_seconds"] * steps}

    def _replay(self, worker: Worker, own: Examiner, moments: list[Moment]) -> None:
        """Let the worker make the last step of each epoch again; note what the witness sees.

        Where the reference has looked at these, only a change of the rate is left to look at.
        """
        self._tell("looking at steps")
        if tests_itself(self.network, self.trial.precision):
            for moment, row in zip(moments, self.outcome.accuracy, strict=True):
                seen = self._look_again(worker, own, moment)
                row.update(witness_error=seen.error, witness_share=seen.share)
                self._refuse(seen, moment.epoch)
        if self.until.scheduled:
            self._refuse(self._look_again(worker, own, self._change(worker, own, moments[0])), 0)

    def _look_again(self, worker: Worker, own: Examiner, moment: Moment) -> witness.Seen:
        """Compare the second step of a moment with what the worker makes of its weights now."""
        rate = REPLAY_RATE if self.until.scheduled else self.network.learning_rate
        self._begin(worker, own, moment.weights[1], moment)
        if self.until.scheduled:
            self._schedule(worker, rate, 0.0)
        again = arrays.mapped(self._step_and_snapshot(worker, own))
        w0, w1, w2 = map(arrays.mapped, moment.weights)
        gradients = witness.own_gradients(w1, again, rate, own.running)
        return witness.look(w0, w1, w2, gradients, moment.recipe)

    def _change(self, worker: Worker, own: Examiner, moment: Moment) -> Moment:
        """Let the worker make two steps, the second with half of the rate of the first.

        Momentum that holds the rate of earlier steps, as Keras keeps it, shows only where it falls.
        """
        start, recipe = moment.weights[1], moment.recipe
        self._begin(worker, own, start, moment)
        half = replace(recipe, rate=recipe.rate / 2, rate_before=recipe.rate)
        left = []
        for each in (recipe, half):
            self._schedule(worker, each.rate, each.decay)
            left.append(self._step_and_snapshot(worker, own))
        return replace(moment, weights=(start, left[0], left[1]), recipe=half)

    def _begin(self, worker: Worker, own: Examiner, weights: Path, moment: Moment) -> None:
        """Let the worker take earlier weights, and the batch of a moment."""
        limit = self.session.suite.limits.window
        worker.ask("load", limit, weights=str(own.parameters_of(weights)))
        worker.ask("feed", limit, batches=str(moment.batch),
                   residence=self.session.residence(self.trial))

    @staticmethod
    def _refuse(seen: witness.Seen, epoch: int) -> witness.Seen:
        if seen.fault:
            where = f"epoch {epoch}" if epoch else "a change of the learning rate"
            raise Failed("different", f"{where}: {seen.fault}")
        return seen

    def _schedule(self, worker: Worker, rate: float, decay: float) -> None:
        worker.ask("schedule", self.session.suite.limits.window, rate=rate, decay=decay)

    def _step_and_snapshot(self, worker: Worker, own: Examiner) -> Path:
        """Train one step that is not timed, and return the weights that it leaves."""
        answer = self._run(worker, 1)
        if not math.isfinite(answer["loss"]):
            raise Failed("diverged", f"the loss is {answer['loss']}")
        return own.snapshot(worker)

    def _keep_for_peers(self) -> None:
        """Keep the weights of a process that was proved, if the suite says so.

        Another seed has other losses, so peers do not vote.
        """
        if self.until.keep_weights:
            self.weights_file.parent.mkdir(exist_ok=True)
            unfinished = self.weights_file.with_suffix(".new")
            runners.arrays.save(unfinished, self.trained)
            unfinished.replace(self.weights_file)
