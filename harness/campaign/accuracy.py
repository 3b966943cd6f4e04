"""One process of a trial that trains until a test accuracy: one seed, epoch by epoch.

All frameworks begin with the weights of the seed and train on its mini-batches, in its order. The
first two steps of an epoch are untimed: the witness looks at them. The others are one window.
Training time is the window's time a step times all steps; testing and feeding do not count.
"""

import math
from pathlib import Path
from typing import Any

import networks
from harness.accuracy.evaluation import Examiner, examiner
from harness.campaign.process import Process
from harness.campaign.session import residence_of
from harness.data import arrays, divided
from harness.plan.suite import Until
from harness.workers.worker import Failed, Unsupported, Worker

WITNESSED = 2  # steps of an epoch


class AccuracyProcess(Process):
    """A process that trains until the suite's target, or fails to."""

    @property
    def seed(self) -> int:
        """The seed of this process: the same for every framework."""
        return self.session.suite.seed + self.number

    def measure(self) -> Any:
        """Train and test; the accuracy of each epoch is a row."""
        outcome = super().measure()
        if outcome.row["status"] != "ok":
            outcome.row.pop("window_steps", None)
        return outcome

    def _feed(self, worker: Worker) -> None:
        """Load the seed's weights; batches come epoch by epoch."""
        network = networks.get(self.trial.network)
        self.weights = self.session.inputs.weights(network, self.seed)
        worker.ask("load", self.session.suite.limits.build, weights=str(self.weights))

    def _time(self, worker: Worker) -> None:
        suite, network = self.session.suite, networks.get(self.trial.network)
        assert suite.until
        parts = divided.divide(self.trial.data, network)
        steps = len(parts.inputs) // self.trial.global_batch
        if steps <= WITNESSED:
            raise Unsupported(f"an epoch of {len(parts.inputs):,} samples has {steps} mini-batches "
                              f"of {self.trial.global_batch:,}; until needs {WITNESSED + 1}: "
                              "ask for a smaller batch")
        self.outcome.row.update(window_steps=steps - WITNESSED)
        with examiner(network, parts, suite.limits.check, self.session.inputs.folder,
                      self.session.live) as own:
            self._train(worker, own, suite.until)
        self._prove(worker, after=True)

    def _train(self, worker: Worker, own: Examiner, until: Until) -> None:
        """Train epoch by epoch. Raises Failed at a wrong step, and if the target is not reached."""
        rows, weights, seconds, step = self.outcome.accuracy, self.weights, 0.0, 0
        for epoch in range(1, until.at_most_epochs + 1):
            self._tell(f"epoch {epoch}")
            batches = self._feed_epoch(worker, own, epoch)
            first = self._step_and_snapshot(worker, own)
            second = self._step_and_snapshot(worker, own)
            seen = own.look((weights, first, second), batches, WITNESSED - 1)
            if seen.fault:
                raise Failed("different", f"epoch {epoch}: {seen.fault}")
            steps = int(self.outcome.row["window_steps"])
            self._window(worker, steps, "timing")
            weights = own.snapshot(worker)
            reached = own.test(weights)
            step += steps + WITNESSED
            seconds += self.outcome.windows[-1]["step_seconds"] * (steps + WITNESSED)
            rows.append({"trial": self.trial.trial, "process": self.number, "seed": self.seed,
                         "epoch": epoch, "step": step, "seconds": seconds,
                         "test_accuracy": reached.accuracy, "test_loss": reached.loss,
                         "witness_error": seen.error, "witness_share": seen.share})
            if reached.accuracy >= until.target:
                return
        best = max(row["test_accuracy"] for row in rows)
        raise Failed("target", f"a test accuracy of {until.target:g} was not reached in "
                               f"{until.at_most_epochs} epochs: the best was {best:.3g}")

    def _feed_epoch(self, worker: Worker, own: Examiner, epoch: int) -> Path:
        """Let the worker take the shuffled mini-batches of an epoch; return their file."""
        batches = own.folder.path("epoch.npz")
        drawn = own.divided.epoch(self.trial.global_batch, self.seed, epoch)
        arrays.save_batches(batches, *drawn)
        worker.ask("feed", self.session.suite.limits.build, batches=str(batches),
                   residence=residence_of(self.trial))
        return batches

    def _step_and_snapshot(self, worker: Worker, own: Examiner) -> Path:
        """Train one step that is not timed, and return the weights that it leaves."""
        answer = self._run(worker, 1)
        if not math.isfinite(answer["loss"]):
            raise Failed("diverged", f"the loss is {answer['loss']}")
        return own.snapshot(worker)

    def _refuse_diverged(self) -> None:
        """Raise Failed if the loss is not finite. Processes are seeds, so peers do not vote."""
        window = self.outcome.windows[-1]
        if not math.isfinite(window["loss"]):
            raise Failed("diverged", f"the loss is {window['loss']} after step "
                                     f"{window['last_step']}")

    def _keep_for_peers(self) -> None:
        """Another seed has other losses."""
