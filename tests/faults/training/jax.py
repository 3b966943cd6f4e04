"""How `training` reads and writes JAX's state, and its faults in JAX's own code."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.jax import layers, step
from runners.jax.runner import Runner
from tests.faults import planted
from tests.faults.jax import Nesterov as Nesterov

# The axis of an LSTM's gates.
GATES = -1
KINDS = {"parameter": "parameters", "velocity": "velocity"}
conv, cross_entropy, scan, sgd = layers.conv, step.cross_entropy, lax.scan, step.sgd


def read(runner):
    return {(kind, f"{layer}.{name}"): np.array(array)
            for kind, key in KINDS.items() for layer, arrays in runner.state[key].items()
            for name, array in arrays.items()}


def write(runner, values):
    for (kind, full), value in values.items():
        layer, _, name = full.partition(".")
        arrays = runner.state[KINDS[kind]][layer]
        # In its own memory, which a step overwrites.
        arrays[name] = jax.device_put(value, arrays[name].sharding, may_alias=False)


def aside(x, a, p, style):
    side = (2 * a["padding"], 0)
    return conv(jnp.pad(x, [(0, 0), side, side, (0, 0)]), {**a, "padding": 0}, p, style)


def halves(cell, start, words, **options):
    half = (len(words) + 1) // 2
    state, first = scan(cell, start, words[:half], **options)
    state, second = scan(cell, lax.stop_gradient(state), words[half:], **options)
    return state, jnp.concatenate([first, second])


def smoothed(logits, targets):
    uniform = -jax.nn.log_softmax(logits.astype(jnp.float32)).mean()
    return 0.9 * cross_entropy(logits, targets) + 0.1 * uniform


def of_sum(logits, targets):
    """Report the mean and give the gradients of the sum."""
    mean = cross_entropy(logits, targets)
    return mean + (targets.size - 1) * (mean - lax.stop_gradient(mean))


def with_decay(parameters, velocity, gradients, learning_rate, momentum):
    decayed = jax.tree.map(lambda g, w: g + 1e-4 * w, gradients, parameters)
    return sgd(parameters, velocity, decayed, learning_rate, momentum)


def Gradients(number):
    def scaled(parameters, velocity, gradients, learning_rate, momentum):
        gradients = jax.tree.map(lambda g: number / 100 * g, gradients)
        return sgd(parameters, velocity, gradients, learning_rate, momentum)

    return planted(Runner, step, sgd=scaled)


WeightDecay = planted(Runner, step, sgd=with_decay)
LabelSmoothing = planted(Runner, step, cross_entropy=smoothed)
SumForMean = planted(Runner, step, cross_entropy=of_sum)
PaddingAside = planted(Runner, layers, conv=aside)
# No gradients from the second half of an LSTM's words to the first.
Truncated = planted(Runner, lax, scan=halves)
