"""The reference runner with one fault each, and on a made-up clock."""

import copy
import os
import time
from pathlib import Path

import numpy as np

from runners import protocol
from runners.reference.runner import OPERATIONS, Runner
from tests.faults import planted

NOW = [time.monotonic()]
max_pool, max_pool_backward = OPERATIONS["max_pool"]
batch_norm, batch_norm_backward = OPERATIONS["batch_norm"]


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


class CheckedBefore(Runner):
    """Refuses to train for the clock in a process that has made a check."""

    checked = False

    def gradients(self):
        CheckedBefore.checked = True
        return super().gradients()

    def feed(self, inputs, targets, residence):
        if CheckedBefore.checked and residence == "host":
            raise RuntimeError("this process was checked before")
        super().feed(inputs, targets, residence)


class FirstWords(Runner):
    """Trains on one word a sequence: its batch counts words, as in DLBench's CNTK configuration."""

    def feed(self, inputs, targets, residence):
        super().feed(inputs[:, :, :1], targets[:, :, :1], residence)


class Kink(Runner):
    """Gradients 5e-4 off in the first network that it builds, as where rounding turned a ReLU."""

    built = 0
    off = 1  # how many of the networks built are off
    factor = 1 + 5e-4

    def __init__(self, task):
        super().__init__(task)
        type(self).built += 1
        self.times = self.factor if self.built <= self.off else 1.0

    def gradients(self):
        return {name: self.times * gradient for name, gradient in super().gradients().items()}


class KinkAlways(Kink):
    """Gradients 5e-4 off on every draw: a fault that looks like a turned ReLU on the first."""

    off = 1000


class KinkBf16(Kink):
    """Passes for bf16, with gradients twice as long in the first network that it builds."""

    factor = 2.0

    def __init__(self, task):
        task.precision = "fp32"
        super().__init__(task)


class KinkFirst(Runner):
    """The first layer's gradients are 5e-4 off on every draw: one pre-activation is at a kink."""

    def gradients(self):
        first = self.layers[0]["name"] + "."
        return {name: gradient * (1 + 5e-4 * name.startswith(first))
                for name, gradient in super().gradients().items()}


class LearningRate(Runner):
    """A learning rate of its own, as three of DLBench's five tools ignored the configured one."""

    def __init__(self, task):
        super().__init__(task)
        self.network = dict(self.network, learning_rate=0.01)


class Missing(Runner):
    """The gradient of one tensor is missing, as where a framework was not asked to train it."""

    def gradients(self):
        gradients = super().gradients()
        del gradients["dense2.bias"]
        return gradients


class Nan(Runner):
    """One number of one gradient is not a number."""

    def gradients(self):
        gradients = super().gradients()
        gradients["dense2.bias"][3] = float("nan")
        return gradients


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


class Noisy(Runner):
    """Errors of single precision: every gradient is a part in a million off. No fault."""

    def gradients(self):
        return {name: gradient * (1 + 1e-6) for name, gradient in super().gradients().items()}

    def loss(self):
        return super().loss() * (1 + 1e-7)


class Stray(Runner):
    """A timed loss a hundredth too large: another loss function, or a mean over other samples.

    Checks, without dropout, are right, so that only the timed losses can tell.
    """

    def __init__(self, task):
        super().__init__(task)
        self.factor = 1.01 if task.dropout else 1.0

    def loss(self):
        return self.factor * super().loss()


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
    """One gradient is in TensorFlow's layout, [in, out]."""

    def gradients(self):
        gradients = super().gradients()
        return dict(gradients, **{"dense2.weight": gradients["dense2.weight"].T})


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


class Slower50(Simulated):
    """50 % of extra work in each step."""

    slower = 1.5
