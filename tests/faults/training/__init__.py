"""Runners that train otherwise than asked, by framework and fault: `training:jax.Momentum85`.

A number is per cent of what the network asks for, or the step after which the fault begins. `Large`
before a fault lets it act on batches of more than two samples only, where a check may not look.
Faults in the network, the batches and the steps are here; those in a framework's own code
are in its own file, as are `read` and `write` of parameters and momentum. Frameworks without a
file have the faults that need neither.
"""

import copy
import importlib
import re

import numpy as np

from tests.faults import counted


def __getattr__(name):
    """Make the runner `framework.Fault`; Python asks here for what the module does not define."""
    framework, dot, fault = name.partition(".")
    if not dot:
        raise AttributeError(name)
    large, kind, number = re.fullmatch("(Large)?([A-Z][A-Za-z]*?)([0-9]*)", fault).groups()
    Runner = importlib.import_module(f"runners.{framework}.runner").Runner
    if kind in GENERIC:
        made = GENERIC[kind](Runner, int(number or 0))
    else:
        own = getattr(of_framework(Runner), kind)
        made = own(int(number)) if number else own
    return only_large(Runner, made) if large else made


def only_large(Runner, Faulty):
    """The framework's own runner for small batches: what a check without the timed batch sees."""

    class Large(Runner):
        def __new__(cls, task):
            return (Faulty if task.batch > 2 else Runner)(task)

    return Large


def of_framework(Runner):
    """The file of faults of a framework, whose runner this is."""
    return importlib.import_module(f"tests.faults.training.{Runner.__module__.split('.')[1]}")


def told(change):
    """Make runners of another network: `change(network, share)` edits a copy of its JSON."""

    def fault(Runner, number):
        class Told(Runner):
            def __init__(self, task):
                task.network = copy.deepcopy(task.network)
                change(task.network, number / 100)
                super().__init__(task)

        return Told

    return fault


def with_rate(network, share):
    network["learning_rate"] *= share


def with_momentum(network, share):
    network["momentum"] = share


def with_attribute(op, name):
    def change(network, share):
        for layer in network["layers"]:
            if layer["op"] == op:
                layer["attributes"][name] = share

    return change


def fed(spoil):
    """Make runners whose batches `spoil` changes in place after step `number`."""

    def fault(Runner, number):
        class Fed(counted(Runner)):
            def feed(self, inputs, targets, residence):
                self.ring_asked, self.fed_at = (inputs, targets, residence), self.steps
                self.fed = self.steps >= number
                super().feed(*self.spoilt(), residence)

            def step(self):
                if not self.fed and self.steps >= number:
                    self.fed = True
                    super().feed(*self.spoilt(), self.ring_asked[2])
                super().step()

            def spoilt(self):
                rings = [np.roll(ring, self.fed_at - self.steps, axis=0)
                         for ring in self.ring_asked[:2]]
                if self.fed:
                    spoil(*rings)
                return rings

        return Fed

    return fault


def half(inputs, targets):
    rows = inputs.shape[1] // 2
    for samples in (inputs, targets):
        samples[:, rows:2 * rows] = samples[:, :rows]


def zeros(inputs, targets):
    inputs[:] = 0


def one(inputs, targets):
    inputs[:], targets[:] = inputs[:1], targets[:1]


def restored(choose):
    """Make runners whose steps leave the tensors, and momentum, that `choose(runner, number)` names."""

    def fault(Runner, number):
        own = of_framework(Runner)

        class Restored(counted(Runner)):
            def step(self):
                names = choose(self, number)
                before = own.read(self) if names else {}
                super().step()
                own.write(self, {key: value for key, value in before.items() if key[1] in names})

        return Restored

    return fault


def undone(when):
    """Make runners that undo an update, momentum too, if `when(runner, step, number)` says so."""
    return restored(lambda runner, number: tensors_of(runner.task.network["layers"])
                    if when(runner, runner.steps, number) else [])


def frozen(choose):
    """Make runners in which the tensors that `choose(layers)` names keep their values."""
    return restored(lambda runner, number: choose(runner.task.network["layers"]))


def tensors_of(layers):
    return [f"{layer['name']}.{name}" for layer in layers for name in layer["parameters"]]


def of_half(layers):
    """The first half of the layers that have parameters."""
    trained = [layer for layer in layers if layer["parameters"]]
    return tensors_of(trained[:len(trained) // 2])


def of_bias(layers):
    """The bias in the middle."""
    names = [name for name in tensors_of(layers) if name.endswith(".bias")]
    return names[(len(names) - 1) // 2:][:1]


def of_norm(layers):
    """Scale and shift of the batch norm in the middle."""
    norms = [layer for layer in layers if layer["op"] == "batch_norm"]
    return tensors_of(norms[len(norms) // 2:][:1])


def gate_frozen(Runner, number):
    """Gate `number` of the first LSTM, of i f g o, keeps its weights."""
    own = of_framework(Runner)

    class GateFrozen(counted(Runner)):
        def step(self):
            lstm = next(each for each in self.task.network["layers"] if each["op"] == "lstm")
            names = tensors_of([lstm])
            before = own.read(self)
            super().step()
            now = {key: value for key, value in own.read(self).items() if key[1] in names}
            for key, value in now.items():
                gates = np.split(value, 4, own.GATES)
                gates[number] = np.split(before[key], 4, own.GATES)[number]
                now[key] = np.concatenate(gates, own.GATES)
            own.write(self, now)

    return GateFrozen


def no_momentum_after(Runner, number):
    """Momentum is forgotten before each step after step `number`."""
    own = of_framework(Runner)

    class NoMomentumAfter(counted(Runner)):
        def step(self):
            if self.steps >= number:
                own.write(self, {key: np.zeros_like(value) for key, value in own.read(self).items()
                                 if key[0] == "velocity"})
            super().step()

    return NoMomentumAfter


def momentum_bits(Runner, number):
    """Momentum is kept in `number` bits a weight, with one scale a tensor."""
    own = of_framework(Runner)

    class MomentumBits(counted(Runner)):
        def step(self):
            super().step()
            own.write(self, {key: in_bits(value, number) for key, value in own.read(self).items()
                             if key[0] == "velocity"})

    return MomentumBits


def in_bits(values, number):
    """Round to 2**number - 1 levels around zero, or to signs, and keep the projection on `values`."""
    unit = np.abs(values).max() / max(2 ** (number - 1) - 1, 1) or 1.0
    rounded = np.sign(values) if number == 1 else np.round(values / unit)
    along = np.vdot(rounded, values)
    return rounded * (np.vdot(values, values) / along if along else 0)


def gates_swapped(Runner, number):
    """The gates f and o of each LSTM are taken for one another; parameters are given back right."""

    class GatesSwapped(counted(Runner)):
        def load(self, weights):
            super().load(self.swapped(weights))

        def parameters(self):
            return self.swapped(super().parameters())

        def swapped(self, tensors):
            lstms = [each for each in self.task.network["layers"] if each["op"] == "lstm"]
            swapped = {}
            for name in tensors_of(lstms):
                i, f, g, o = np.split(tensors[name], 4)
                swapped[name] = np.concatenate([i, o, g, f])
            return {**tensors, **swapped}

    return GatesSwapped


def rank_misses(runner, step, number):
    """Whether this is the last rank, at its `number`th step."""
    return runner.task.rank == runner.task.ranks - 1 and (step + 1) % number == 0


# Faults that any framework can have.
GENERIC = {
    "LearningRate": told(with_rate),
    "Momentum": told(with_momentum),
    "Dropout": told(with_attribute("dropout", "rate")),
    "Epsilon": told(lambda network, share: with_attribute("batch_norm", "epsilon")(network, 1e-3)),
    # The share of the old running statistics that a step keeps; with `Running100` none is tracked.
    "Running": told(with_attribute("batch_norm", "running")),
    "HalfBatch": fed(half),
    "Zeros": fed(zeros),
    "OneBatch": fed(one),
    "Never": undone(lambda runner, step, number: True),
    "Stops": undone(lambda runner, step, number: step >= number),
    "UpdatesEvery": undone(lambda runner, step, number: (step + 1) % number),
    "Skips": undone(lambda runner, step, number: (step + 1) % number == 0),
    "RankMisses": undone(rank_misses),
    "HalfFrozen": frozen(of_half),
    "BiasFrozen": frozen(of_bias),
    "NormFrozen": frozen(of_norm),
    "GateFrozen": gate_frozen,
    "NoMomentumAfter": no_momentum_after,
    "MomentumBits": momentum_bits,
    "GatesSwapped": gates_swapped,
}

# The faults of the proof, with the numbers that it must see; others than these can be asked for.
FAULTS = [
    "Never", "UpdatesEvery4", "Skips4", "Stops20", "HalfBatch", "HalfBatch20", "Zeros20",
    "OneBatch20", "LargeHalfBatch", "LargeNever", "LargeMomentum0", "LargeLearningRate70",
    "LargeHalfFrozen", "Gradients15", "Gradients50", "Gradients90", "Gradients110", "Gradients185",
    "LearningRate95", "LearningRate105", "Momentum0", "Momentum85", "Momentum95",
    "NoMomentumAfter20", "Nesterov", "WeightDecay", "HalfFrozen", "BiasFrozen", "NormFrozen",
    "GateFrozen0", "GateFrozen2", "SumForMean", "LabelSmoothing", "Dropout40", "Truncated",
    "GatesSwapped", "PaddingAside", "Epsilon", "Running80", "Running99", "Running100",
]
# The operation that a network must have for a fault.
NEEDS = {"Dropout": "dropout", "Epsilon": "batch_norm", "Running": "batch_norm",
         "NormFrozen": "batch_norm", "GateFrozen": "lstm", "GatesSwapped": "lstm",
         "Truncated": "lstm", "PaddingAside": "conv2d"}


def applies(fault, operations):
    """Whether a network of these operations can have the fault."""
    kind = re.fullmatch("(Large)?(.*?)[0-9]*", fault).group(2)
    return NEEDS.get(kind) in {None, *operations}
