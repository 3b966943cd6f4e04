"""Engines on the NumPy reference that go wrong in one way each; `Good` and `GoodBf16` do not."""

import sys
import time

import numpy as np

from runners import protocol
from runners.inference import Engine, flat, timed_calls, trained
from runners.protocol import Task
from runners.reference import inference, rounded, runner
from tests.faults import planted

# Of the made-up clock. A later process begins later by it, though it ran ahead of the machine's.
NOW = [100 * time.monotonic()]


class Good(Engine):
    """The reference itself, answering in float32."""

    epsilon = None
    said = ""

    @staticmethod
    def describe():
        return runner.Runner.describe()

    def __init__(self, task, arrays):
        self.network, self.calls = task.network, 0
        self.precision = task.precision
        self.built = self.reference()
        self.load({name: np.array(array) for name, array in arrays.items()})

    def reference(self):
        return runner.Runner(Task(self.network, 1, dropout=False))

    def load(self, arrays):
        self.count = sum(array.size for array in trained(arrays).values())
        inference.load(self.built, arrays)

    def arithmetic(self):
        return self.said

    def parameter_count(self):
        return self.count

    def feed(self, inputs, targets, residence):
        self.ring, self.position = inputs, 0

    def step(self):
        self.calls += 1
        self.answer = self.compute(self.built._place(self.next_batch()))

    def compute(self, inputs):
        return self.built.forward(inputs)[0]

    synchronize = staticmethod(protocol.nothing)

    def output(self, rows):
        return flat(self.answer)[rows]


class GoodBf16(Good):
    """What an engine does in bf16: operands and outputs of all layers are rounded."""

    def reference(self):
        return rounded.Runner(Task(self.network, 1, dropout=False), "bf16")

    def compute(self, inputs):
        self.built.drawn = {}
        return super().compute(inputs)


class Epsilon(Good):
    """Batch norm's epsilon of Keras, 1e-3."""

    def load(self, arrays):
        for layer in self.built.layers:
            if layer["op"] == "batch_norm":
                self.built.attributes[layer["name"]]["epsilon"] = 1e-3
        super().load(arrays)


class BatchStatistics(Good):
    """Batch norm in training mode."""

    def load(self, arrays):
        super().load(trained(arrays))


class NoBias(Good):
    """The last layer's bias is lost; its place is kept, so the number of parameters is right."""

    def load(self, arrays):
        name = [name for name in arrays if name.endswith(".bias")][-1]
        super().load(dict(arrays, **{name: np.zeros_like(arrays[name])}))


class OtherWeights(Good):
    """Weights of another seed."""

    def load(self, arrays):
        draw = np.random.default_rng(2)
        super().load({name: array if name not in trained(arrays) else
                      draw.permutation(array.ravel()).reshape(array.shape)
                      for name, array in arrays.items()})


class Cached(Good):
    """Every call has the first one's outputs."""

    def compute(self, inputs):
        if self.calls == 1:
            self.first = super().compute(inputs)
        return self.first


class CachedLater(Good):
    """The proof is answered; the timed calls repeat one answer."""

    def compute(self, inputs):
        return super().compute(inputs) if self.calls < 12 else self.answer


class RepeatsEvery2(Good):
    """Each second call after the first that follows a look at its outputs repeats the one before."""

    since = 0

    def compute(self, inputs):
        self.since += 1
        repeats = self.since > 1 and self.since % 2
        return self.answer if repeats else super().compute(inputs)

    def output(self, rows):
        self.since = 0
        return super().output(rows)


class HalfTheBatch(Good):
    """Rows of the first half answer for those of the second."""

    def compute(self, inputs):
        half = super().compute(inputs[:len(inputs) // 2])
        return np.concatenate([half, half])


class SilentBf16(GoodBf16):
    """bf16 whatever was asked for, as OpenVINO comes on a processor that has it."""


class SaysBf16(Good):
    """An engine whose own property names another precision."""

    said = "bf16"


class FewerParameters(Good):
    def parameter_count(self):
        return self.count - 1


class WrongForSome(Good):
    """One sample of about thirty has the outputs of its neighbour's classes."""

    def compute(self, inputs):
        outputs = super().compute(inputs)
        unlucky = (1000 * np.abs(inputs).reshape(len(inputs), -1).sum(axis=1)).astype(int) % 33 == 0
        return np.where(unlucky[:, None], np.roll(outputs, 1, axis=1), outputs)


def look():
    """A made-up clock, which each look moves a little."""
    NOW[0] += 2e-5
    return NOW[0]


def pass_by(seconds):
    NOW[0] += seconds


class Steady(planted(Good, timed_calls, __defaults__=(look,))):
    """A call takes a millisecond of a made-up clock."""

    def step(self):
        super().step()
        pass_by(1e-3)


class Slow(Steady):
    """One call of a hundred takes 40 ms longer."""

    def step(self):
        super().step()
        if self.calls % 100 == 50:
            pass_by(0.04)


class Sleeps(Good):
    """A call takes 2 ms and a little."""

    def step(self):
        super().step()
        time.sleep(0.002)


class SleepsOften(Sleeps):
    """One call of eight takes 60 ms longer."""

    def step(self):
        super().step()
        time.sleep(0.06 * (self.calls % 8 == 0))


class WithoutLoadGen(Good):
    """Its environment lacks LoadGen."""

    def step(self):
        sys.modules["mlperf_loadgen"] = None
        super().step()


class ShortOfCalls(Good):
    """It answers with the outputs of too few samples."""

    def output(self, rows):
        return flat(self.answer)[rows][:1]
