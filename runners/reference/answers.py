"""What the reference answers to the proof: gradients, and how far correct ones may be off.

Python 3.6 syntax, like the reference itself.
"""

from itertools import takewhile

import numpy as np

from runners.arrays import Archive, mapped
from runners.protocol import Task
from runners.reference import (
    llama,
    rounded,
    rounded_llama,
    rounded_transformers,
    runner,
    transformers,
)
from runners.reference.operations import softmax_cross_entropy


def session():
    return Answers()


class Built:
    """What the answers about training and about inference have in common."""

    def build(self, **task):
        """Build the network on `devices` shards of `batch` samples, with dropout off."""
        self.task = Task(**task)
        self.runner = runner.Runner(self.task)
        return {"parameters": sum(each.size for each in self.runner.weights.values())}

    def close(self):
        return {}


class Answers(Built):
    """The commands of the proof, one method each."""

    def ask(self, weights, samples, first):
        """Load weights, and feed samples (N, devices, s, ...) from batch `first` on."""
        self.drawn, arrays = mapped(weights), mapped(samples)
        self.ring = [np.roll(each, -first, axis=0).reshape((len(each), -1) + each.shape[3:])
                     for each in (arrays["inputs"], arrays["targets"])]
        self._prepare(self.runner)
        return {}

    def answer(self, steps, out, head=""):
        """Save the gradients of the first batch, and the running statistics after one step.

        With several `steps` also the parameters that they leave. With the name of the last layer
        that trains only its gradients: nothing below it is differentiated.
        """
        loss, gradients = self.runner.differentiate(*self.runner.ring[0])
        if head:
            gradients = takewhile(lambda each: each[0].startswith(head + "."), gradients)
        with Archive(out) as archive:
            for name, gradient in gradients:
                archive.add("gradient/" + name, gradient)
            if not head:
                self.runner.track()
                for name, value in self.runner.statistics().items():
                    archive.add("statistic/" + name, value)
            losses = [loss]
            if steps > 1:
                losses = self._train(steps)
                for name, value in self.runner.weights.items():
                    archive.add("parameter/" + name, value)
        return {"losses": losses}

    def spread(self, precision, runs, seed):
        """Measure the errors of `runs` runs with random rounding, the largest of each kind.

        Returns the loss's relative error, and of every gradient and running statistic the errors
        of its coefficient and its norm and its distance, as `errors_of` has them.
        """
        self._prepare(self.runner)
        exact, loss = self._once(self.runner)
        worst, losses = {}, []
        for run in range(runs):
            found, its_loss = self._rounded_once(precision, seed * runs + run)
            losses.append(abs(its_loss / loss - 1))
            for name in exact:
                errors = errors_of(found[name], exact[name])
                worst[name] = np.maximum(worst.get(name, 0), errors)
        return {"loss": max(losses), "tensors": {name: list(map(float, errors))
                                                 for name, errors in worst.items()}}

    def masks(self, runs, seed):
        """Measure what random dropout masks do to each gradient, over `runs` runs.

        Each gradient is divided by the norm of that without dropout. `Masks` says of what the
        answer consists.
        """
        self._prepare(self.runner)
        exact, loss = self._once(self.runner)
        other = runner.Runner(Task(self.task.network, self.task.batch, dropout=True, seed=seed,
                                   devices=self.task.devices))
        self._prepare(other)
        found = {name: Masks(gradient) for name, gradient in exact.items()}
        losses = []
        for _ in range(runs):
            gradients, its_loss = self._once(other)
            losses.append(its_loss / loss)
            for name, masks in found.items():
                masks.add(gradients[name])
        return {"tensors": {name: masks.summary() for name, masks in found.items()},
                "loss": [float(np.mean(losses)), float(np.std(losses, ddof=1))]}

    def masked_head(self, runs, seed):
        """Measure what random dropout masks do to the gradient of the last layer's weight.

        Returns the mean and the standard deviation of its coefficient along the gradient without
        dropout.
        """
        last = self.runner.layers[-1]["name"]
        other = runner.Runner(Task(self.task.network, self.task.batch, dropout=True, seed=seed,
                                   devices=self.task.devices))

        def gradient(one):
            inputs, targets = self.ring[0][0], self.ring[1][0]
            logits, saved = one.forward(inputs.astype(np.float64))
            _, dlogits = softmax_cross_entropy(logits, targets)
            return dlogits.reshape(-1, logits.shape[-1]).T @ saved[last][0]

        for each in (self.runner, other):
            self._prepare(each)
        exact = gradient(self.runner)
        found = [sum_of(gradient(other), exact) / sum_of(exact, exact) for _ in range(runs)]
        return {"mean": float(np.mean(found)), "deviation": float(np.std(found, ddof=1))}

    def _train(self, steps):
        """Train from the weights that were loaded; return the loss of each step."""
        self._prepare(self.runner)
        losses = []
        for _ in range(steps):
            self.runner.step()
            losses.append(self.runner.loss())
        return losses

    def _rounded_once(self, precision, seed):
        """As `_once`, by a reference that rounds at random. It is freed before the next one."""
        other = rounded_runner(Task(self.task.network, self.task.batch, seed=seed,
                                    devices=self.task.devices, dropout=False), precision)
        self._prepare(other)
        return self._once(other)

    def _prepare(self, runner):
        runner.load(self.drawn)
        runner.feed(*self.ring, residence="device")

    def _once(self, runner):
        """Return by name the gradients and moved statistics of a first step, and its loss.

        The runner has loaded its weights and stays as it is. Each gate of an LSTM has its own
        entry, such as `lstm1.bias.f`.
        """
        loss, gradients = runner.differentiate(*runner.ring[0])
        gradients = dict(gradients)
        found = runner.moved()
        for layer in runner.layers:
            for name in layer["parameters"]:
                full = layer["name"] + "." + name
                if layer["op"] == "lstm":
                    gates = np.split(gradients[full], 4)
                    found.update((full + "." + gate, gates["ifgo".index(gate)]) for gate in "ifgo")
                else:
                    found[full] = gradients[full]
        return found, loss


class Masks:
    """What dropout masks do to one tensor's gradient; takes the gradients one by one.

    Only their sum is kept: 16 gradients of VGG-16 would take 18 GB. Welford's method gives their
    variance from it.
    """

    def __init__(self, exact):
        self.exact = exact
        self.scale = sum_of(exact, exact) or 1.0
        self.sum = np.zeros_like(exact)
        self.coefficients, self.squares, self.with_mean, self.variances = [], [], [], []

    def add(self, gradient):
        done = len(self.squares)
        square = sum_of(gradient, gradient) / self.scale
        if done:
            along = sum_of(gradient, self.sum) / self.scale / done
            mean = sum_of(self.sum, self.sum) / self.scale / done**2
            self.with_mean.append(along)
            self.variances.append((square - 2 * along + mean) * done / (done + 1))
        self.coefficients.append(sum_of(gradient, self.exact) / self.scale)
        self.squares.append(square)
        self.sum += gradient

    def summary(self):
        """Return what `harness.proof.dropout.Masked` names, in its order."""
        count = len(self.squares)
        variance = np.mean(self.variances)
        # The first means are of few gradients.
        settled = self.with_mean[count // 4:]
        return [float(each) for each in (
            np.mean(self.coefficients), np.std(self.coefficients, ddof=1),
            np.mean(self.squares) - variance, np.std(settled, ddof=1),
            np.std(self.squares, ddof=1), variance, np.std(self.variances, ddof=1),
            min(self.squares))]


def rounded_runner(task, precision):
    """Return the reference with random rounding that the network's operations need."""
    ops = {layer["op"] for layer in task.network["layers"]}
    module = rounded_transformers if ops.intersection(transformers.OPERATIONS) else rounded
    return (rounded_llama if ops.intersection(llama.OPERATIONS) else module).Runner(task, precision)


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
