"""What the reference answers about inference: outputs, and how far correct ones may be off.

Batch norm reads running statistics and dropout is off. Where the file of weights has the scales of
quantised tensors, the network is the one that INT8 makes of it. Python 3.6 syntax, like the
reference.
"""

import numpy as np

from runners import int8
from runners.arrays import error_along, mapped
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

    def outputs(self, weights, inputs, out, places=()):
        """Save the float64 outputs for `inputs` (n, ...), of a sequence those of some places."""
        load(self.runner, mapped(weights))
        np.savez(out, outputs=outputs_of(self.runner, mapped(inputs)["inputs"], places))
        return {}

    def ranges(self, weights, inputs, out):
        """Save the least and the largest number of each tensor that INT8 quantises, by name."""
        load(self.runner, mapped(weights))
        found = {name: [0.0, 0.0] for name in int8.tensors(self.task.network)}

        def seen(name, y):
            if name in found:
                low, high = found[name]
                found[name] = [min(low, float(y.min())), max(high, float(y.max()))]
            return y

        self.runner.store = seen
        outputs_of(self.runner, mapped(inputs)["inputs"])
        np.savez(out, **{name: np.array(ends) for name, ends in found.items()})
        return {}

    def rounding(self, weights, inputs, precision, runs, seed, moves=False):
        """Return the largest error of each of `runs` runs with random rounding (`errors_of`).

        `along` is `error_along` of each sample and the next one, in each run. With `moves`, in each
        run one number of a tensor that INT8 stores goes to another level.
        """
        arrays, samples = mapped(weights), mapped(inputs)["inputs"]
        load(self.runner, arrays)
        exact = outputs_of(self.runner, samples)
        errors, along = [], []
        for run in range(runs):
            task = Task(self.task.network, self.task.batch, dropout=False, seed=seed * runs + run)
            # An INT8 engine computes in float32 between its integers.
            other = answers.rounded_runner(task, "fp32" if precision == "int8" else precision)
            other.drawn = {}
            load(other, arrays)
            if moves:
                names = sorted(int8.scales(self.task.network, arrays))
                quantise(other, arrays, names[np.random.RandomState(task.seed).randint(len(names))])
            found = outputs_of(other, samples)
            errors.append(float(errors_of(found, exact).max()))
            along += [error_along(found[first:first + 2], exact[first:first + 2])
                      for first in range(len(exact) - 1)]
        return {"errors": errors, "along": along}


def load(built, arrays):
    """Load weights and, where there are any, running statistics and the scales of INT8."""
    built.load({name: arrays[name] for name in built.weights})
    normalise = built.operations["batch_norm"]
    for layer in built.layers:
        if layer["op"] == "batch_norm" and layer["name"] + ".mean" in arrays:
            built.attributes[layer["name"]]["running_moments"] = [
                arrays[layer["name"] + "." + kind].astype(np.float64)
                for kind in ("mean", "variance")]
            normalise = (running_norm, None)
    built.operations = dict(built.operations, batch_norm=normalise)
    if any(name.endswith("." + int8.QUANTISED) for name in arrays):
        quantise(built, arrays)


def quantise(built, arrays, moving=""):
    """Make a loaded network the one that its INT8 form computes.

    In the tensor `moving` one number of each sample goes to another level.
    """
    network = built.network
    norms = {product: norm for norm, product in int8.folded(network).items()}
    for name, product in int8.quantised_products(network, arrays).items():
        weight, bias = product.dequantised()
        if name + ".weight" in built.weights:
            built.weights[name + ".weight"][...] = weight
        else:
            # A tied head is quantised; the embedding, whose table it shares, is not.
            built.attributes[name]["own_weight"] = weight
            built.operations = dict(built.operations, tied_dense=own_head(built.operations))
        if name in norms:
            built.attributes[norms[name]]["folded_bias"] = bias
        if name + ".bias" in built.weights:
            built.weights[name + ".bias"][...] = 0 if name in norms else bias
    scales = int8.scales(network, arrays)
    # A runner with random rounding stores what it computed in float32.
    computed = getattr(built, "rounded", np.asarray)

    def store(name, y):
        if name not in scales:
            return y
        return int8.rounded_to_levels(computed(y), *scales[name], moves=name == moving)

    built.store = store


def own_head(operations):
    """Return the tied head's operation, which reads its own weight in place of the table."""
    forward, _ = operations["tied_dense"]
    return lambda a, w, x: forward(a, {"weight": a["own_weight"]}, x), None


def running_norm(a, w, x):
    """Normalise each channel by its running mean and variance, unless its convolution does."""
    if "folded_bias" in a:
        return x + a["folded_bias"][:, None, None], None
    mean, variance = a["running_moments"]
    factor = w["scale"] / np.sqrt(variance + a["epsilon"])
    return x * factor[:, None, None] + (w["shift"] - mean * factor)[:, None, None], None


def outputs_of(built, samples, places=()):
    """Return the last layer's outputs, one sample at a time: a batch would hold all layers."""
    found = (built.forward(built._place(sample[None]))[0] for sample in samples)
    return np.concatenate([y[:, list(places)] if places else y for y in found])


def errors_of(found, exact):
    """Return each sample's distance from the exact output, in units of how outputs differ.

    The unit is the standard deviation of the distances between the exact outputs and their mean. It
    divides by n - 1, as the driver's `unit_of` does. So an engine that answers what does not depend
    on its input is off by about one.
    """
    flat = exact.reshape(len(exact), -1)
    unit = np.sqrt(np.square(flat - flat.mean(axis=0)).sum() / (len(flat) - 1))
    apart = np.sqrt(np.square(found.reshape(flat.shape) - flat).sum(axis=1))
    return apart / unit



