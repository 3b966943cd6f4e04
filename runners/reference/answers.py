"""What the reference answers to the proof: gradients, and how far correct ones may be off.

Python 3.6 syntax, like the reference itself.
"""

import numpy as np

from runners.protocol import Task
from runners.reference import rounded, runner


def session():
    return Answers()


class Answers:
    """The commands of the proof, one method each."""

    def build(self, **task):
        """Build the network on `devices` shards of `batch` samples, with dropout off."""
        self.task = Task(**task)
        self.runner = runner.Runner(self.task)
        return {}

    def close(self):
        return {}

    def ask(self, weights, samples):
        """Load weights, and feed batch 0 and 1 of samples (N, devices, s, ...)."""
        with np.load(weights) as arrays:
            self.drawn = {name: arrays[name] for name in arrays.files}
        with np.load(samples) as arrays:
            self.ring = [each.reshape((len(each), -1) + each.shape[3:])
                         for each in (arrays["inputs"], arrays["targets"])]
        self._prepare(self.runner)
        return {}

    def answer(self, steps, out):
        """Save gradients of batch 0, running statistics after a step, parameters after `steps`."""
        found = {"gradient/" + name: value for name, value in self.runner.gradients().items()}
        losses = []
        for step in range(steps):
            self.runner.step()
            losses.append(self.runner.loss())
            if step == 0:
                found.update(("statistic/" + name, value)
                             for name, value in self.runner.statistics().items())
        found.update(("parameter/" + name, value)
                     for name, value in self.runner.parameters().items())
        np.savez(out, **found)
        return {"losses": losses}

    def spread(self, precision, runs, seed):
        """Measure the errors of `runs` runs with random rounding, the largest of each kind.

        Returns the loss's relative error, and of every gradient and running statistic the errors
        of its coefficient and its norm and its distance, as `errors_of` has them.
        """
        exact, (loss,) = self._once(self.runner)
        worst, losses = {}, []
        for run in range(runs):
            task = Task(self.task.network, self.task.batch, seed=seed * runs + run,
                        devices=self.task.devices, dropout=False)
            other = rounded.Runner(task, precision)
            self._prepare(other)
            found, (its_loss,) = self._once(other)
            losses.append(abs(its_loss / loss - 1))
            for name in exact:
                errors = errors_of(found[name], exact[name])
                worst[name] = np.maximum(worst.get(name, 0), errors)
        return {"loss": max(losses), "tensors": {name: list(map(float, errors))
                                                 for name, errors in worst.items()}}

    def masks(self, runs, seed):
        """Measure what random dropout masks do to each gradient of batch 0, over `runs` runs.

        Relative to the gradient g without dropout: the mean and the standard deviation of the
        coefficient, the mean and the standard deviation of the squared norm, the variance (half
        the squared distance of two runs), and the standard deviation of that over pairs of runs.
        """
        exact, (loss,) = self._once(self.runner)
        other = runner.Runner(Task(self.task.network, self.task.batch, dropout=True, seed=seed,
                                   devices=self.task.devices))
        self._prepare(other)
        rows = {name: [] for name in exact}
        losses, last = [], None
        for _ in range(runs):
            found, (its_loss,) = self._once(other)
            losses.append(its_loss / loss)
            for name, wanted in exact.items():
                square = sum_of(wanted, wanted) or 1.0
                mine = found[name]
                apart = np.nan if last is None else mine - last[name]
                rows[name].append((sum_of(mine, wanted) / square, sum_of(mine, mine) / square,
                                   np.nan if last is None else sum_of(apart, apart) / square / 2))
            last = found
        summary = {}
        for name, values in rows.items():
            coefficient, norm, variance = np.array(values).T
            summary[name] = [float(each) for each in (
                coefficient.mean(), coefficient.std(ddof=1), norm.mean(), norm.std(ddof=1),
                np.nanmean(variance), np.nanstd(variance, ddof=1))]
        return {"tensors": summary, "loss": [float(np.mean(losses)), float(np.std(losses, ddof=1))]}

    def _prepare(self, runner):
        runner.load(self.drawn)
        runner.feed(*self.ring, residence="device")

    def _once(self, runner):
        """Return the loss of one step on batch 0, and by name its gradients and moved statistics.
        """
        self._prepare(runner)
        gradients = runner.gradients()
        runner.step()
        moved = {name: value - name.endswith(".variance")
                 for name, value in runner.statistics().items()}
        return dict(gradients, **moved), [runner.loss()]


def errors_of(ours, wanted):
    """Relative errors of a tensor: of its coefficient, of its norm, and its distance.

    With <x, y> the sum of products: |<ours, wanted> / <wanted, wanted> - 1|,
    | |ours| / |wanted| - 1 | and |ours - wanted| / |wanted|.
    """
    square = sum_of(wanted, wanted)
    if not square:
        return 0.0, 0.0, 0.0
    difference = ours - wanted
    return (abs(sum_of(ours, wanted) / square - 1),
            abs(np.sqrt(sum_of(ours, ours) / square) - 1),
            np.sqrt(sum_of(difference, difference) / square))


def sum_of(left, right):
    return float(np.dot(left.ravel(), right.ravel()))
