"""The reference runner with one fault each, and on a made-up clock."""

import copy
import os
import time
from pathlib import Path

import numpy as np

from runners import protocol
from runners.protocol import Unsupported
from runners.reference import runner
from runners.reference.runner import OPERATIONS, Runner
from tests.faults import counted, planted

NOW = [time.monotonic()]
max_pool, max_pool_backward = OPERATIONS["max_pool"]
batch_norm, batch_norm_backward = OPERATIONS["batch_norm"]
softmax_cross_entropy = runner.softmax_cross_entropy


def ceil(a, w, x):
    high, wide = (-(length + 2 * a["padding"] - a["kernel"]) % a["stride"]
                  for length in x.shape[2:])
    more = ((0, 0), (0, 0), (0, high), (0, wide))
    return max_pool(a, w, np.pad(x, more, "constant", constant_values=-np.inf))


def without_scale(w):
    return {"scale": np.ones_like(w["scale"]), "shift": w["shift"]}


def no_scale(a, w, x):
    return batch_norm(a, without_scale(w), x)


def no_scale_backward(a, w, saved, dy):
    inputs, parameters = batch_norm_backward(a, without_scale(w), saved, dy)
    return inputs, dict(parameters, scale=np.zeros_like(w["scale"]))


def smoothed(logits, targets):
    """The loss of 0.9 times the targets and 0.1 of all classes."""
    loss, gradient = softmax_cross_entropy(logits, targets)
    rows = logits.reshape(-1, logits.shape[-1])
    likely = rows - rows.max(axis=1, keepdims=True)
    likely = likely - np.log(np.exp(likely).sum(axis=1, keepdims=True))
    spread = (np.exp(likely) - 1 / rows.shape[1]) / len(rows)
    return (0.9 * loss - 0.1 * likely.mean(), 0.9 * gradient + 0.1 * spread.reshape(logits.shape))


class Ceil(Runner):
    """Pooling that rounds up, as Caffe pools unless told otherwise."""

    operations = dict(OPERATIONS, max_pool=(ceil, max_pool_backward))


class NoScale(Runner):
    """Batch norm that does not scale, as DLBench's Caffe files had it; its scale learns nothing."""

    operations = dict(OPERATIONS, batch_norm=(no_scale, no_scale_backward))


class BreaksProduct(Runner):
    """Raises instead of the product for the machine's peak."""

    @staticmethod
    def product(size, task):
        raise RuntimeError(f"no room for {size} x {size}")


class NoProduct(Runner):
    """Has no product for the machine's peak, as most old frameworks' runners."""

    product = staticmethod(protocol.Runner.product)


class NoStream(Runner):
    """Has no stream for the machine's peak, as most old frameworks' runners."""

    stream = staticmethod(protocol.Runner.stream)


class FirstWords(Runner):
    """Trains on one word a sequence: its batch counts words, as in DLBench's CNTK configuration."""

    def feed(self, inputs, targets, residence):
        super().feed(inputs[:, :, :1], targets[:, :, :1], residence)


class Gradients(Runner):
    """Makes something else of each gradient of the loss: `changed(name, gradient)`."""

    def differentiate(self, x, targets):
        loss, gradients = super().differentiate(x, targets)
        return loss, [(name, self.changed(name, gradient)) for name, gradient in gradients]


class Kink(Gradients):
    """Gradients off on the first samples that it is fed, as where rounding turned a ReLU."""

    factor = 1.5
    drawn = None
    everywhere = False

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, residence)
        # The same in whatever order samples come.
        drawn = np.sort(inputs, axis=None).sum()
        self.drawn = self.drawn or drawn
        self.off = self.everywhere or drawn == self.drawn

    def changed(self, name, gradient):
        of_head = name.startswith(self.layers[-1]["name"])
        return gradient * (self.factor if self.off and not of_head else 1)


class KinkAlways(Kink):
    """Gradients off on every draw: a fault that looks like a turned ReLU on the first."""

    everywhere = True


class KinkBf16(Kink):
    """Passes for bf16."""

    def __init__(self, task):
        task.precision = "fp32"
        super().__init__(task)


class KinkFirst(Gradients):
    """The first layer's gradients are off on every draw."""

    def changed(self, name, gradient):
        return gradient * (1 + 0.005 * name.startswith(self.layers[0]["name"] + "."))


class MiddleHalf(Runner):
    """Trains on the middle half of each batch."""

    def feed(self, inputs, targets, residence):
        middle = slice(inputs.shape[1] // 4, inputs.shape[1] // 4 * 3)
        super().feed(inputs[:, middle], targets[:, middle], residence)


class LabelsTwoAway(Runner):
    """Each row has the label of the row two before it."""

    def feed(self, inputs, targets, residence):
        super().feed(inputs, np.roll(targets, 2, axis=1), residence)


class HeadAloneEvery2(counted(Gradients)):
    """Each second step computes no gradient below the last layer: a third of the work is saved."""

    def changed(self, name, gradient):
        of_head = name.startswith(self.layers[-1]["name"])
        return gradient * (1 if of_head or not self.spared() else 0)

    def spared(self):
        return self.steps % 2 == 1


class HeadAloneOnBatch2(HeadAloneEvery2):
    """The same on each second batch of the ring."""

    def spared(self):
        return self.position % 2 == 1


class TracksEvery2(counted(Runner)):
    """The running statistics stand still in each second step."""

    def track(self):
        if self.steps % 2 == 0:
            super().track()


class Across(Gradients):
    """Adds to one gradient what is at right angles to it: its coefficient stays right."""

    tensor, size = "dense2.weight", 0.1

    def changed(self, name, gradient):
        if name != self.tensor or not gradient.any():
            return gradient
        across = np.roll(gradient, 1)
        across = across - gradient * (across * gradient).sum() / np.square(gradient).sum()
        return gradient + self.size * across * np.linalg.norm(gradient) / np.linalg.norm(across)


class AcrossLittle(Across):
    """Too little for the norm."""

    size = 0.01


class AcrossHead(Across):
    """The head's bias moves in another direction."""

    tensor = "dense4.bias"


class HeadReads(Gradients):
    """The head's weights learn from an input that is too large."""

    def changed(self, name, gradient):
        return gradient * (1.05 if name == "dense4.weight" else 1)


class TwiceTheLoss(Runner):
    """Answers twice its loss."""

    def loss(self):
        return 2 * super().loss()


class SameMasks(Runner):
    """Drops the same units after each load."""

    def load(self, weights):
        super().load(weights)
        for attributes in self.attributes.values():
            attributes["random"].seed(1)


class LabelSmoothing(planted(Runner, runner, softmax_cross_entropy=smoothed)):
    """A tenth of each target is spread over all classes."""


class LearningRate(Runner):
    """A learning rate of its own, as three of DLBench's five tools ignored the configured one."""

    def __init__(self, task):
        super().__init__(task)
        self.rate = 0.01


class Missing(Runner):
    """One tensor is missing, as where a framework was not asked to train it."""

    def parameters(self):
        parameters = super().parameters()
        del parameters["dense2.bias"]
        return parameters


class Nan(Gradients):
    """One number of one gradient is not a number."""

    def changed(self, name, gradient):
        if name == "dense2.bias":
            gradient[3] = float("nan")
        return gradient


class Nesterov(Runner):
    """Nesterov's momentum, as Torch's DLBench scripts had it."""

    def update(self, name, gradient):
        rate, momentum = self.network["learning_rate"], self.network["momentum"]
        self.velocities[name] = momentum * self.velocities[name] + gradient
        further = gradient + momentum * self.velocities[name]
        self.weights[name] = self.weights[name] - rate * further


class NoMomentum(Runner):
    """Plain gradient descent: the first step is right."""

    def __init__(self, task):
        super().__init__(task)
        self.network = dict(self.network, momentum=0.0)


class Noisy(Gradients):
    """Errors of single precision: every gradient is a part in a million off. No fault."""

    def changed(self, name, gradient):
        return gradient * (1 + 1e-6)

    def loss(self):
        return super().loss() * (1 + 1e-7)


class Stray(counted(Runner)):
    """A loss a hundredth too large from the third step on: only timed losses can tell."""

    def loss(self):
        return super().loss() * (1.01 if self.steps_since_load > 2 else 1.0)


class Swapped(Runner):
    """The first two hidden layers are swapped, as in DLBench's CNTK configuration of FCN-R."""

    def __init__(self, task):
        task.network = copy.deepcopy(task.network)
        dense = [layer for layer in task.network["layers"] if layer["op"] == "dense"]
        first, second = dense[:2]
        first["attributes"], second["attributes"] = second["attributes"], first["attributes"]
        super().__init__(task)


class TrainableInput(Runner):
    """The input is a trained variable, as in DLBench's TensorFlow scripts."""

    def _build(self):
        super()._build()
        self.weights["image"] = np.zeros(self.network["input_shape"])
        self.velocities["image"] = np.zeros(self.network["input_shape"])

    def load(self, weights):
        super().load(dict(weights, image=self.weights["image"]))


class Transposed(Runner):
    """One tensor is in TensorFlow's layout, [in, out]."""

    def parameters(self):
        parameters = super().parameters()
        return dict(parameters, **{"dense2.weight": parameters["dense2.weight"].T})


class Untold(Runner):
    """Forgets to answer its running statistics."""

    def statistics(self):
        return {}


class Hidden(Runner):
    """Says that its running statistics cannot be read."""

    def statistics(self):
        raise Unsupported("the framework keeps them to itself")


class NoMean(Runner):
    """Its running means are missing."""

    def statistics(self):
        return {name: value for name, value in super().statistics().items()
                if not name.endswith(".mean")}


class NanVariance(Runner):
    """A running variance is not a number."""

    def statistics(self):
        return dict(super().statistics(), **{"batch_norm1.variance": np.full(4, np.nan)})


class Unbiased(Runner):
    """Keeps the running variance of the population, with n - 1 samples, as PyTorch does."""

    def track(self):
        shapes = {layer["name"]: layer["output_shape"] for layer in self.layers}
        rows = len(self.ring[0][0]) // self.shards
        for name in self.moments:
            if name.endswith(".variance"):
                count = rows * np.prod(shapes[name.partition(".")[0]][1:])
                self.moments[name] = self.moments[name] * count / (count - 1)
        super().track()


class Deviation(Runner):
    """Keeps the standard deviation in the place of the variance."""

    def track(self):
        self.moments = {name: moment if name.endswith(".mean") else np.sqrt(moment)
                        for name, moment in self.moments.items()}
        super().track()


class WeightDecay(Runner):
    """Every update takes a ten-thousandth of the weights."""

    def update(self, name, gradient):
        super().update(name, gradient + 1e-4 * self.weights[name])


class Simulated(planted(Runner, protocol.timed_run, __defaults__=(lambda: NOW[0],))):
    """A made-up clock: a step takes a millisecond, and nothing sleeps.

    Processes differ by up to 2 %, by their place in the campaign; steps by a tenth of that.
    """

    slower = 1.0

    def __init__(self, task):
        super().__init__(task)
        place = len(list(Path(os.curdir).glob("*.log")))  # each process opens a log
        self.noise = np.random.default_rng(place)
        self.seconds = self.slower * 1e-3 * np.exp(self.noise.uniform(-0.02, 0.02))

    def step(self):
        super().step()
        NOW[0] += self.seconds * np.exp(self.noise.uniform(-0.002, 0.002))


class Slower5(Simulated):
    """5 % of extra work in each step."""

    slower = 1.05


class Packaged(Simulated):
    """As fast as the installed package `fakeframework` says, and of its release."""

    def __init__(self, task):
        import fakeframework

        self.slower = fakeframework.slower
        super().__init__(task)

    @staticmethod
    def describe():
        import fakeframework

        return {"release": fakeframework.__version__, "device_name": "a made-up processor"}


class Slower50(Simulated):
    """50 % of extra work in each step."""

    slower = 1.5
