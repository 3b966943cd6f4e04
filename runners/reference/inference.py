"""What the reference answers about inference: outputs, and how far correct ones may be off.

Batch norm reads running statistics and dropout is off. Python 3.6 syntax, like the reference.
"""

import numpy as np

from runners.arrays import mapped
from runners.protocol import Task
from runners.reference import answers, runner


def session():
    return Answers()


class Answers(answers.Built):
    """The commands, one method each."""

    def moments(self, weights, inputs, out):
        """Save the mean and variance that each batch norm finds in `inputs`, by full name."""
        load(self.runner, mapped(weights))
        self.runner.operations = dict(runner.OPERATIONS)
        _, saved = self.runner.forward(self.runner._place(mapped(inputs)["inputs"]))
        np.savez(out, **self.runner._moments(saved))
        return {}

    def outputs(self, weights, inputs, out):
        """Save the float64 outputs for `inputs` (n, ...)."""
        load(self.runner, mapped(weights))
        np.savez(out, outputs=outputs_of(self.runner, mapped(inputs)["inputs"]))
        return {}

    def rounding(self, weights, inputs, precision, runs, seed):
        """Return the largest error of each of `runs` runs with random rounding (`error_of`)."""
        arrays, samples = mapped(weights), mapped(inputs)["inputs"]
        load(self.runner, arrays)
        exact = outputs_of(self.runner, samples)
        errors = []
        for run in range(runs):
            task = Task(self.task.network, self.task.batch, dropout=False, seed=seed * runs + run)
            other = answers.rounded_runner(task, precision)
            other.drawn = {}
            load(other, arrays)
            errors.append(float(errors_of(outputs_of(other, samples), exact).max()))
        return {"errors": errors}


def load(built, arrays):
    """Load weights and, where there are any, running statistics."""
    built.load({name: arrays[name] for name in built.weights})
    normalise = built.operations["batch_norm"]
    for layer in built.layers:
        if layer["op"] == "batch_norm" and layer["name"] + ".mean" in arrays:
            built.attributes[layer["name"]]["running_moments"] = [
                arrays[layer["name"] + "." + kind].astype(np.float64)
                for kind in ("mean", "variance")]
            normalise = (running_norm, None)
    built.operations = dict(built.operations, batch_norm=normalise)


def running_norm(a, w, x):
    """Normalise each channel by its running mean and variance."""
    mean, variance = a["running_moments"]
    factor = w["scale"] / np.sqrt(variance + a["epsilon"])
    return x * factor[:, None, None] + (w["shift"] - mean * factor)[:, None, None], None


def outputs_of(built, samples):
    """Return the last layer's outputs, one sample at a time: a batch would hold all layers."""
    return np.concatenate([built.forward(built._place(sample[None]))[0] for sample in samples])


def errors_of(found, exact):
    """Return each sample's distance from the exact output, in units of how outputs differ.

    The unit is the root mean square of the distances between the exact outputs and their mean. So
    an engine that answers what does not depend on its input is off by about one.
    """
    flat = exact.reshape(len(exact), -1)
    unit = np.sqrt(np.square(flat - flat.mean(axis=0)).sum(axis=1).mean())
    apart = np.sqrt(np.square(found.reshape(flat.shape) - flat).sum(axis=1))
    return apart / unit


